"""The router's pod: Envoy, restricted, with its files mounted, and an end that loses no request."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api import names

from headway_operator.observed import Object
from headway_operator.router.render import Site
from headway_operator.router.render.xds import CLUSTERS_FILE, LISTENERS_FILE, ROUTES_FILE

CONTAINER = "envoy"
USER = 65532
THREADS = 2
LINGER_SECONDS = 15  # until every client and kube-proxy knows that the pod is going
LONGEST_REQUEST_SECONDS = 60  # after that, requests that still run are cut off
_STARTING_FILES = ("bootstrap.json", LISTENERS_FILE, ROUTES_FILE)


@dataclass(frozen=True, slots=True)
class Image:
    """What router pods run, and names of Secrets of their own namespace with which it is pulled."""

    reference: str
    pull_secrets: tuple[str, ...] = ()


def pod_template(site: Site, image: Image, labels: Mapping[str, str]) -> Object:
    """`metadata` and `spec` of a router pod. It satisfies the `restricted` Pod Security level and has no token."""
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [_envoy(site, image.reference)],
            "enableServiceLinks": False,
            **({"imagePullSecrets": [{"name": name} for name in image.pull_secrets]} if image.pull_secrets else {}),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "serviceAccountName": names.ROUTER_NAME,
            "terminationGracePeriodSeconds": LINGER_SECONDS + LONGEST_REQUEST_SECONDS + 15,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}},
                }
            ],
            "volumes": [{"name": "files", "projected": {"sources": _sources()}}],
        },
    }


def ending(admin_port: int, *, linger: int = LINGER_SECONDS, longest: int = LONGEST_REQUEST_SECONDS) -> str:
    """The preStop hook, for bash: Envoy itself ends at once on SIGTERM, whatever it has in hand.

    Fail the health check: the pod becomes NotReady and leaves its Services, and answers ask clients to close their
    connections. Then wait `linger` seconds, and until no request is in flight, at most `longest` seconds more.
    """
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{admin_port}"
    send = "printf '%s\\r\\n' \"$1\" 'Host: admin' 'Connection: close' '' >&3"
    active = "GET /stats?filter=^http.ingress.downstream_rq_active$ HTTP/1.1"
    return "\n".join(
        [
            f"ask() {{ {connect} && {send} && cat <&3; }}",
            "ask 'POST /healthcheck/fail HTTP/1.1' >/dev/null",
            f"sleep {linger}",
            f"for _ in $(seq {longest}); do",
            f"  case \"$(ask '{active}')\" in *'rq_active: 0'*) break ;; esac",
            "  sleep 1",
            "done",
        ]
    )


def _envoy(site: Site, image: str) -> Object:
    ready = {"httpGet": {"path": "/ready", "port": "readout"}}
    return {
        "name": CONTAINER,
        "image": image,
        "args": [
            *("--config-path", f"{site.directory}/bootstrap.json"),
            *("--concurrency", str(THREADS)),
            *("--log-level", "warning"),
            "--disable-hot-restart",
        ],
        "ports": [
            {"name": "http", "containerPort": site.port, "protocol": "TCP"},
            {"name": "readout", "containerPort": site.readout_port, "protocol": "TCP"},
        ],
        "readinessProbe": {**ready, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1},
        "livenessProbe": {
            # The port only: /ready fails on purpose while the pod ends.
            "tcpSocket": {"port": "readout"},
            "initialDelaySeconds": 30,
            "periodSeconds": 5,
            "failureThreshold": 6,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["bash", "-c", ending(site.admin_port)]}}},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "files", "mountPath": site.directory, "readOnly": True}],
    }


def _sources() -> list[Object]:
    """One directory of two ConfigMaps; the operator's own keys stay out, so that they refresh no volume."""
    return [_source(names.ROUTER_NAME, _STARTING_FILES), _source(f"{names.ROUTER_NAME}-clusters", (CLUSTERS_FILE,))]


def _source(config_map: str, keys: tuple[str, ...]) -> Object:
    return {"configMap": {"name": config_map, "items": [{"key": key, "path": key} for key in keys]}}
