"""Envoy's files: a discovery response each, with a version that names its content."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway_operator.router.render import flow
from headway_operator.router.render.clusters import clusters
from headway_operator.router.render.listeners import listener
from headway_operator.router.render.published import Published
from headway_operator.router.render.routes import route_configuration
from headway_operator.router.render.site import Site

LISTENERS_FILE = "listeners.yaml"
CLUSTERS_FILE = "clusters.yaml"
ROUTES_FILE = "routes.yaml"

_TYPES = {
    LISTENERS_FILE: "envoy.config.listener.v3.Listener",
    CLUSTERS_FILE: "envoy.config.cluster.v3.Cluster",
    ROUTES_FILE: "envoy.config.route.v3.RouteConfiguration",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file. A router acknowledges `version` once it obeys the content."""

    name: str
    version: str
    text: str


@dataclass(frozen=True, slots=True)
class Files:
    """The three files of a router."""

    listeners: File
    clusters: File
    routes: File

    def data(self) -> dict[str, str]:
        """As ConfigMap keys."""
        return {file.name: file.text for file in (self.listeners, self.clusters, self.routes)}

    @property
    def digest(self) -> str:
        """One name for the versions of all three."""
        versions = "\n".join(file.version for file in (self.listeners, self.clusters, self.routes))
        return hashlib.sha256(versions.encode()).hexdigest()[:12]


def render(published: Published, site: Site) -> Files:
    """The files for what is published. The same input gives the same bytes."""
    return Files(
        listeners=_file(LISTENERS_FILE, 0, [listener(site)]),
        clusters=_file(CLUSTERS_FILE, published.clusters_serial, clusters(published.clusters, site)),
        routes=_file(ROUTES_FILE, published.routes_serial, [route_configuration(published.routes, site)]),
    )


def _file(name: str, serial: int, resources: Sequence[dict[str, Any]]) -> File:
    typed = [{"@type": f"type.googleapis.com/{_TYPES[name]}", **resource} for resource in resources]
    content = flow.dump(typed)
    version = f"{serial}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return File(name, version, f'{{"version_info": "{version}","resources": {content}}}')
