"""Where a router lives: the facts about its namespace and cluster that its files contain."""

from dataclasses import dataclass
from typing import Literal

from headway_api import names

Family = Literal["V4_ONLY", "V6_ONLY", "AUTO", "V4_PREFERRED", "ALL"]  # Envoy's DnsLookupFamily


@dataclass(frozen=True, slots=True)
class Site:
    """Frozen facts of one namespace's router. Only `namespace` differs between routers of one installation."""

    namespace: str
    cluster_domain: str = "cluster.local"
    family: Family = "V4_ONLY"  # address family of the pods; explicit, so that no lookup waits for the other one
    directory: str = "/etc/headway/router"  # where the pod mounts the ConfigMap
    port: int = names.INFERENCE_PORT  # clients
    readout_port: int = names.ADMIN_PORT  # read-only facts
    admin_port: int = names.ENVOY_ADMIN_PORT  # Envoy's own interface, loopback only
    backend_port: int = names.INFERENCE_PORT  # of the runtime pods
    grpc_port: int = names.GRPC_PORT  # likewise

    @property
    def any_address(self) -> str:
        """The address to listen on."""
        return "::" if self.family == "V6_ONLY" else "0.0.0.0"  # noqa: S104 - a router is there to be reached

    def backend_host(self, model: str, revision: str) -> str:
        """The revision's headless Service. The dot at the end keeps the resolver from trying its search list."""
        return f"{names.revision_object(model, revision)}.{self.namespace}.svc.{self.cluster_domain}."
