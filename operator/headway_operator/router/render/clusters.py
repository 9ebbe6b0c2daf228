"""Clusters as Envoy resources: plain ones that find and check a revision's pods, role ones that fall over."""

from collections.abc import Mapping
from typing import Any

from headway_api import names

from headway_operator.router.render.published import is_grpc, members, over_http
from headway_operator.router.render.site import Site

CHECK_SECONDS = 1
IDLE_SECONDS = 30  # below the runtime's keep-alive, so that no request meets a connection that the pod is closing
_PREFIX = "type.googleapis.com/envoy.extensions"


def clusters(limits: Mapping[str, int], site: Site) -> list[dict[str, Any]]:
    """One resource per cluster; `limits` maps its name to the requests in flight that its circuit breaker allows."""
    return [
        _aggregate(name, limit) if members(name) else _plain(name, limit, site)
        for name, limit in sorted(limits.items())
    ]


def _plain(name: str, limit: int, site: Site) -> dict[str, Any]:
    grpc = is_grpc(name)
    model, _, revision = over_http(name).partition("/")
    port = site.grpc_port if grpc else site.backend_port
    endpoint: dict[str, Any] = {
        "address": {"socket_address": {"address": site.backend_host(model, revision), "port_value": port}}
    }
    if grpc:  # the same check of the same pods: one answer for both of a revision's ports
        endpoint["health_check_config"] = {"port_value": site.backend_port}
    return {
        "name": name,
        "cluster_type": {
            "name": "envoy.cluster.dns",
            "typed_config": {
                "@type": f"{_PREFIX}.clusters.dns.v3.DnsCluster",
                "all_addresses_in_single_endpoint": False,  # every address of the name is a pod (STRICT_DNS)
                "dns_lookup_family": site.family,
                # Not the record's TTL: that may be 30 s, and a pod's address can change hands sooner.
                "dns_refresh_rate": "1s",
                "dns_failure_refresh_rate": {"base_interval": "1s", "max_interval": "2s"},
            },
        },
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        "common_lb_config": _load_balancing(),
        "load_assignment": {
            "cluster_name": name,
            # One healthy pod of many still carries everything: else weights would leak to the fall-back by degrees.
            "policy": {"overprovisioning_factor": 100_000},
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
        "health_checks": [_health_check(model, revision)],
        "outlier_detection": _outlier_detection(),
        "circuit_breakers": _circuit_breakers(limit),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_PREFIX}.upstreams.http.v3.HttpProtocolOptions",
                "common_http_protocol_options": {"idle_timeout": f"{IDLE_SECONDS}s"},
                "explicit_http_config": {"http2_protocol_options" if grpc else "http_protocol_options": {}},
            }
        },
    }


def _aggregate(name: str, limit: int) -> dict[str, Any]:
    return {
        "name": name,
        "cluster_type": {
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": f"{_PREFIX}.clusters.aggregate.v3.ClusterConfig",
                "clusters": list(members(name)),
            },
        },
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "common_lb_config": _load_balancing(),
        "circuit_breakers": _circuit_breakers(limit),  # a retry is counted here, its connection in the plain cluster
    }


def _load_balancing() -> dict[str, Any]:
    """No panic (unhealthy pods never serve), and no delay.

    By default changes of health reach the threads that serve up to 1 s after the statistics show them: a route to a
    revision that the acknowledgement called healthy would answer 503 for that long.
    """
    return {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"}


def _health_check(model: str, revision: str) -> dict[str, Any]:
    """Ready, and the revision that we think it is: addresses are reused, and DNS is late.

    The path is the Open Inference Protocol's readiness of one version of one model; any other pod answers 404.
    """
    return {
        "timeout": "1s",
        "interval": f"{CHECK_SECONDS}s",
        "no_traffic_interval": f"{CHECK_SECONDS}s",
        "unhealthy_threshold": 2,  # for timeouts and resets; any answer but 200 counts at once
        "healthy_threshold": 1,
        # Without a host Envoy sends the cluster's name, which is none.
        "http_health_check": {
            "host": model,
            "path": f"/v2/models/{model}/versions/{revision}/ready",
            # A pod that drains then says that it is degraded: Envoy uses it only while no other pod is healthy, until
            # DNS tells of the pods that replace it.
            "request_headers_to_add": [{"header": {"key": names.CHECK_HEADER, "value": "router"}}],
        },
    }


def _outlier_detection() -> dict[str, Any]:
    """Only what this router saw itself (connect failures, resets). What a pod answers, an error too, ejects nobody."""
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 5,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_local_origin_success_rate": 0,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "enforcing_failure_percentage": 0,
        "enforcing_failure_percentage_local_origin": 0,
        "base_ejection_time": "5s",
        "max_ejection_percent": 100,
    }


def _circuit_breakers(limit: int) -> dict[str, Any]:
    breakers = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
    return {"thresholds": [dict.fromkeys(breakers, limit)]}
