"""The pod of a revision: `prepare` fetches and checks, `serve` answers. Recorded once, with every value resolved.

It satisfies the `restricted` Pod Security level: no root, no capability, no writable root file system; and it has no
token of the API. Credentials of the object store and the keys of signers are mounted into `prepare` only; the process
that runs the model never sees them.
"""

from dataclasses import dataclass
from typing import Any

from headway_api import names
from headway_api.podtemplate import Template
from headway_api.revision import Cold
from headway_api.types import DeviceKind
from headway_api.units import parse_duration

from headway_operator.desired.meta import labels
from headway_operator.observed import Object, Resource

DEFAULT_DRAIN = "60s"
GRACE_MARGIN = 10  # seconds after the drain, for the process to end by itself
USER = 65532
DEFAULT_REQUESTS = {"cpu": "100m", "memory": "512Mi"}
DEFAULT_GPU = "nvidia.com/gpu"
STARTUP_SECONDS = 3600  # a large model is loaded and compiled for; progressDeadline is what users tune
SCRATCH = "256Mi"  # /tmp, in memory: whatever a program does there is bounded, and charged to its own pod

_HTTP, _ADMIN, _GRPC = "http", "admin", "grpc"
_CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


@dataclass(frozen=True, slots=True)
class SecretMount:
    """A Secret that `prepare` needs: where the spec names it, where it is mounted, and the option that says so."""

    path: tuple[str, ...]  # below `artifact`
    volume: str
    directory: str
    option: str

    @property
    def field(self) -> str:
        """The field of the spec, for people."""
        return f"spec.artifact.{'.'.join(self.path)}.secretName"

    def name(self, cold: Cold) -> str | None:
        """Name of the Secret in a revision's cold fields; None when they name none."""
        value: Any = cold.get("artifact", {})
        for key in (*self.path, "secretName"):
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None


SECRETS = (
    SecretMount(("credentials",), "credentials", names.CREDENTIALS_DIR, "--credentials"),
    SecretMount(("trust", "publicKeys"), "public-keys", names.PUBLIC_KEYS_DIR, "--public-keys"),
    SecretMount(("trust", "builderKeys"), "builder-keys", names.BUILDER_KEYS_DIR, "--builder-keys"),
)


def pod_template(resource: Resource, cold: Cold, *, revision: str, image: str) -> Object:
    """`metadata` and `spec` of the pods of a revision."""
    assert resource.spec is not None
    template = resource.spec.template or Template()
    given = template.model_dump(mode="json", by_alias=True, exclude_none=True)
    annotations = given.get("podAnnotations")
    return {
        "metadata": {
            "labels": {**given.get("podLabels", {}), **labels(resource.name, revision)},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [_serve(cold, given, image)],
            "enableServiceLinks": False,
            "initContainers": [_prepare(cold, given, image)],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "serviceAccountName": given.get("serviceAccountName", resource.name),
            "terminationGracePeriodSeconds": _grace(template),
            "volumes": _volumes(resource.name, revision, cold),
            **{field: given[field] for field in _AS_GIVEN if given.get(field)},
        },
    }


_AS_GIVEN = ("affinity", "imagePullSecrets", "nodeSelector", "priorityClassName", "tolerations")


def _grace(template: Template) -> int:
    drain = parse_duration(template.drain_timeout or DEFAULT_DRAIN, "spec.template.drainTimeout")
    return int(drain) + GRACE_MARGIN


def _prepare(cold: Cold, given: Object, image: str) -> Object:
    secrets = [secret for secret in SECRETS if secret.name(cold)]
    command = [
        *("python", "-m", "headway_runtime.prepare"),
        *("--config", names.CONFIG_FILE),
        *("--digest-file", names.DIGEST_FILE),
        *(word for secret in secrets for word in (secret.option, secret.directory)),
        *("--output", names.MODEL_DIR),
        *("--termination-log", names.TERMINATION_LOG),
    ]
    mounts = [
        _mount("config", names.CONFIG_DIR),
        *(_mount(secret.volume, secret.directory) for secret in secrets),
        _mount("model", names.MODEL_DIR, writable=True),
        _mount("tmp", "/tmp", writable=True),  # noqa: S108
    ]
    return _container(names.PREPARE_CONTAINER, image, command, mounts) | {"resources": _resources(given)}


def _serve(cold: Cold, given: Object, image: str) -> Object:
    command = [
        *("python", "-m", "headway_runtime.serve"),
        *("--config", names.CONFIG_FILE),
        *("--knobs", names.KNOBS_FILE),
        *("--model", names.MODEL_DIR),
        *("--termination-log", names.TERMINATION_LOG),
        *("--grpc-port", str(names.GRPC_PORT)),
    ]
    mounts = [
        _mount("config", names.CONFIG_DIR),
        _mount("knobs", names.KNOBS_DIR),
        _mount("model", names.MODEL_DIR),
        _mount("tmp", "/tmp", writable=True),  # noqa: S108
    ]
    return _container(names.SERVE_CONTAINER, image, command, mounts) | {
        "env": _environment(given.get("env", [])),
        "livenessProbe": _probe("/healthz", _ADMIN, period=10, timeout=5, failures=6),
        "ports": [
            {"name": _HTTP, "containerPort": names.INFERENCE_PORT, "protocol": "TCP"},
            {"name": _ADMIN, "containerPort": names.ADMIN_PORT, "protocol": "TCP"},
            {"name": _GRPC, "containerPort": names.GRPC_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": _probe("/v2/health/ready", _HTTP, period=1, timeout=2, failures=3),
        "resources": _with_device(_resources(given), cold["device"]),
        "startupProbe": _probe("/healthz", _ADMIN, period=1, timeout=5, failures=STARTUP_SECONDS),
    }


def _container(name: str, image: str, command: list[str], mounts: list[Object]) -> Object:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": _CONTAINER_SECURITY,
        "terminationMessagePath": names.TERMINATION_LOG,
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }


def _environment(given: list[Object]) -> list[Object]:
    """The user's variables over ours. Without a passive wait, OpenMP threads that share a core starve each other."""
    ours = [{"name": "OMP_WAIT_POLICY", "value": "passive"}]
    named = {variable["name"] for variable in given}
    return [variable for variable in ours if variable["name"] not in named] + given


def _resources(given: Object) -> Object:
    """The user's, for both containers: a pod counts the larger of the two, and can be of the Guaranteed class."""
    return given.get("resources") or {"requests": dict(DEFAULT_REQUESTS)}


def _with_device(resources: Object, device: dict[str, Any]) -> Object:
    if device["kind"] != DeviceKind.GPU:
        return resources
    name = device.get("resourceName", DEFAULT_GPU)
    return resources | {"limits": {**resources.get("limits", {}), name: "1"}}


def _probe(path: str, port: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _mount(name: str, path: str, *, writable: bool = False) -> Object:
    return {"name": name, "mountPath": path} | ({} if writable else {"readOnly": True})


def _volumes(model: str, revision: str, cold: Cold) -> list[Object]:
    """ConfigMaps are mounted whole: a single file mounted by `subPath` would never change."""
    return [
        {"name": "config", "configMap": {"name": names.revision_object(model, revision)}},
        {"name": "knobs", "configMap": {"name": names.knobs_object(model)}},
        *({"name": each.volume, "secret": {"secretName": name}} for each in SECRETS if (name := each.name(cold))),
        {"name": "model", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": SCRATCH}},
    ]
