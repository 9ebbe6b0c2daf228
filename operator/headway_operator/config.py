"""How one operator process is set up."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Config:
    """What the command line says."""

    runtime_image: str  # of new revisions that name none; those on record keep theirs
    router_image: str
    router_pull_secrets: tuple[str, ...] = ()  # names of Secrets, in each namespace that has a router
    cluster_domain: str = "cluster.local"
    namespaces: tuple[str, ...] = ()  # none: all of the cluster
    kubeconfig: Path | None = None  # None: the service account of this pod
    host: str = "0.0.0.0"  # noqa: S104
    port: int = 8080  # /healthz and /metrics
    workers: int = 8
    resync_seconds: float = 300.0
