"""Envoy's start: where its files are, the loopback admin interface, and the read-only listener in front of it."""

from typing import Any

from headway_api import names

from headway_operator.router.render.listeners import ADMIN_CLUSTER, file_source, readout_listener
from headway_operator.router.render.site import Site
from headway_operator.router.render.xds import CLUSTERS_FILE, LISTENERS_FILE

MAX_CONNECTIONS = 20_000  # from clients, to one router


def bootstrap(site: Site) -> dict[str, Any]:
    """The configuration that `envoy --config-path` reads once. Everything that changes later is in the xDS files."""
    loopback = {"socket_address": {"address": "127.0.0.1", "port_value": site.admin_port}}
    return {
        "node": {"id": names.ROUTER_NAME, "cluster": names.ROUTER_NAME},
        "admin": {"address": loopback},
        "dynamic_resources": {
            "lds_config": file_source(site, LISTENERS_FILE),
            "cds_config": file_source(site, CLUSTERS_FILE),
        },
        "typed_dns_resolver_config": _resolver(),
        "overload_manager": {"resource_monitors": [_connection_limit()]},
        "static_resources": {
            "listeners": [readout_listener(site)],
            "clusters": [
                {
                    "name": ADMIN_CLUSTER,
                    "connect_timeout": "1s",
                    "load_assignment": {
                        "cluster_name": ADMIN_CLUSTER,
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": loopback}}]}],
                    },
                }
            ],
        },
    }


def _connection_limit() -> dict[str, Any]:
    """So that clients who open connections without end meet a refusal, and not a router out of memory or files."""
    return {
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": "type.googleapis.com/"
            "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            "max_active_downstream_connections": MAX_CONNECTIONS,
        },
    }


def _resolver() -> dict[str, Any]:
    """A lost query must not hold up a new cluster for the 20 s that the library would wait."""
    return {
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "query_timeout_seconds": 1,
            "query_tries": 3,
        },
    }
