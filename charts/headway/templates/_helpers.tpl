{{/* The release's name, with "headway" in it: what every object is named after. */}}
{{- define "headway.name" -}}
{{- if contains "headway" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-headway" (.Release.Name | trunc 32 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "headway.operator" -}}
{{ include "headway.name" . }}-operator
{{- end }}

{{- define "headway.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "headway.operator" .) }}{{ else }}{{ required "serviceAccount.name: write the name of the ServiceAccount to use, or set serviceAccount.create: true" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* What the Deployment and the Service select by; it never changes within a release. */}}
{{- define "headway.selector" -}}
app.kubernetes.io/name: headway-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headway.labels" -}}
{{ include "headway.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: headway
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image reference from (dict "image" values "root" .). */}}
{{- define "headway.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}
