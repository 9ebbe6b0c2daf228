-- Health of a ModelDeployment for Argo CD: key `resource.customizations.health.serving.headway.dev_ModelDeployment`
-- of the ConfigMap argocd-cm. See examples/README.md.
local function progressing(message)
  return { status = "Progressing", message = message }
end

if obj.status == nil or obj.status.conditions == nil then
  return progressing("Waiting for the operator")
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return progressing("Waiting for the operator to act on generation " .. obj.metadata.generation)
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end

local function is(kind, status)
  return conditions[kind] ~= nil and conditions[kind].status == status
end

local function explain(kind)
  return kind .. ": " .. (conditions[kind].reason or "") .. ": " .. (conditions[kind].message or "")
end

if is("Stalled", "True") then
  return { status = "Degraded", message = explain("Stalled") }
end
if is("Accepted", "False") then
  return { status = "Degraded", message = explain("Accepted") }
end
if is("UpToDate", "True") and is("Ready", "True") then
  return { status = "Healthy", message = conditions["UpToDate"].message or "" }
end
for _, kind in ipairs({ "ArtifactVerified", "Ready", "UpToDate" }) do
  if is(kind, "False") then
    return progressing(explain(kind))
  end
end
return progressing("Waiting for Ready and UpToDate")
