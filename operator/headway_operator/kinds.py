"""The kinds of objects that the operator reads and writes, and how to address them at the API server.

`CHILDREN` are the kinds that a pass makes for a ModelDeployment or a router: records before what is rendered from them,
configuration before the pods that mount it. Pruning goes the other way round.
"""

from dataclasses import dataclass

from headway_api import names

from headway_operator.observed import Object


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind of the API server."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; empty for the core one."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str | None = None, *, subresource: str | None = None) -> str:
        """The URL path of an object, or of all objects; without a namespace: of the whole cluster."""
        parts = ["api" if not self.group else "apis", self.api_version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


MODEL_DEPLOYMENT = Kind(names.API_VERSION, names.KIND, names.PLURAL)
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
SERVICE = Kind("v1", "Service", "services")
POD_DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
POD = Kind("v1", "Pod", "pods")
POD_EVENT = Kind("v1", "Event", "events")
EVENT = Kind("events.k8s.io/v1", "Event", "events")

CHILDREN = (
    CONTROLLER_REVISION,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    NETWORK_POLICY,
    SERVICE,
    POD_DISRUPTION_BUDGET,
    DEPLOYMENT,
)
WATCHED = (MODEL_DEPLOYMENT, *CHILDREN, POD)

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in (*WATCHED, EVENT)}


def kind_of(obj: Object) -> Kind:
    """The kind of an object. Raises KeyError when the operator has no business with it."""
    return _BY_NAME[obj["apiVersion"], obj["kind"]]
