"""The listener that clients reach, and the read-only one that tells what the router obeys."""

from typing import Any

from headway_api import names

from headway_operator.router.render.routes import ROUTE_CONFIGURATION
from headway_operator.router.render.site import Site

STAT_PREFIX = "ingress"
ADMIN_CLUSTER = "admin"
MAX_CALLS = 1024  # at the same time on one connection of HTTP/2
READOUT_PATH = "/readout"
# Exactly what `readout.py` reads; the path below is rewritten to this, so that no caller can ask for another pattern.
READOUT_FILTER = r"(version_text|update_rejected|update_failure|warming_clusters|membership_healthy)$"
_PREFIX = "type.googleapis.com/envoy.extensions.filters"


def listener(site: Site) -> dict[str, Any]:
    """HTTP/1.1, h2c and gRPC on one port. The access log is off: inputs and addresses are the users'."""
    manager = {
        **_manager(STAT_PREFIX),
        "rds": {
            "route_config_name": ROUTE_CONFIGURATION,
            "config_source": file_source(site, "routes.yaml"),
        },
        # Also strips x-envoy-* from requests: no caller may widen what is retried.
        "use_remote_address": True,
        "strip_any_host_port": True,
        "normalize_path": True,
        "merge_slashes": True,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": "0s",  # an answer may take as long as its own deadline allows
        "http2_protocol_options": {"max_concurrent_streams": MAX_CALLS},
        "local_reply_config": {
            "mappers": [_of_grpc(_not_admitted()), _of_grpc(_interrupted()), _not_admitted(), _interrupted()]
        },
    }
    return {"name": STAT_PREFIX, **_listening(site.any_address, site.port, manager)}


def readout_listener(site: Site) -> dict[str, Any]:
    """GET of three paths, passed to the loopback admin interface; everything else is 404. Part of the bootstrap."""
    targets = {
        "/ready": "/ready",
        "/stats/prometheus": "/stats/prometheus",
        READOUT_PATH: f"/stats?format=json&filter={READOUT_FILTER}",
    }
    get = {"name": ":method", "string_match": {"exact": "GET"}}
    rules = [
        {
            "match": {"path": path, "headers": [get]},
            "route": {"cluster": ADMIN_CLUSTER, "prefix_rewrite": target},
        }
        for path, target in targets.items()
    ]
    manager = {
        **_manager("readout"),
        "route_config": {"virtual_hosts": [{"name": "readout", "domains": ["*"], "routes": rules}]},
    }
    return {
        "name": "readout",
        "ignore_global_conn_limit": True,  # a router full of clients must not look dead
        **_listening(site.any_address, site.readout_port, manager),
    }


def file_source(site: Site, name: str) -> dict[str, Any]:
    """A file in the mounted directory, whose `..data` link the kubelet swaps as a whole."""
    return {
        "resource_api_version": "V3",
        "path_config_source": {
            "path": f"{site.directory}/{name}",
            "watched_directory": {"path": site.directory},
        },
    }


def _not_admitted() -> dict[str, Any]:
    """No model has seen the request: no healthy pod, no connection, or a full circuit breaker."""
    header = {"header": {"key": names.NOT_ADMITTED_HEADER, "value": "1"}}
    return {**_as_json("UH", "UF", "UO"), "headers_to_add": [header]}


def _interrupted() -> dict[str, Any]:
    """A pod ended, or closed the connection, while it had the request: a model may have seen it."""
    return _as_json("UC", "UR", "LR", "UT", "UPE")


def _as_json(*flags: str) -> dict[str, Any]:
    return {
        "filter": {"response_flag_filter": {"flags": list(flags)}},
        "body_format_override": {
            "json_format": {"error": "%LOCAL_REPLY_BODY%", "reason": "%RESPONSE_CODE_DETAILS%"},
        },
    }


def _of_grpc(mapper: dict[str, Any]) -> dict[str, Any]:
    """The same for a call of gRPC, whose message is plain text."""
    header = {"name": "content-type", "string_match": {"prefix": "application/grpc"}}
    body = {"text_format_source": {"inline_string": "%LOCAL_REPLY_BODY% (%RESPONSE_CODE_DETAILS%)"}}
    both = {"and_filter": {"filters": [mapper["filter"], {"header_filter": {"header": header}}]}}
    return {**mapper, "filter": both, "body_format_override": body}


def _manager(stat_prefix: str) -> dict[str, Any]:
    return {
        "@type": f"{_PREFIX}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": stat_prefix,
        "codec_type": "AUTO",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_PREFIX}.http.router.v3.Router"},
            }
        ],
    }


def _listening(address: str, port: int, manager: dict[str, Any]) -> dict[str, Any]:
    return {
        "address": {"socket_address": {"address": address, "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
