"""The route configuration: one virtual host per model, and one for every other host that goes by path."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headway_api import names

from headway_operator.router.render.published import Route, is_grpc, over_grpc, plain
from headway_operator.router.render.site import Site

ROUTE_CONFIGURATION = "headway"
RETRY_BODY_BYTES = 8 * 1024 * 1024  # a larger body is not kept, so its request is not repeated
NO_READY_REVISION = "NoReadyRevision"
UNKNOWN_REVISION = "UnknownRevision"
UNKNOWN_MODEL = "UnknownModel"
_NO_HOST = "no model of this router has this host or path"
_NO_PIN_HERE = "a revision is chosen on the model's own host: send Host: <model>"

NOT_FOUND, UNIMPLEMENTED, UNAVAILABLE = 5, 12, 14  # statuses of gRPC
_GRPC: dict[str, Any] = {"prefix": "/", "grpc": {}}  # requests whose content type says so
_ANY_PIN = {"name": names.REVISION_HEADER, "present_match": True}


def route_configuration(routes: Mapping[str, Route], site: Site) -> dict[str, Any]:
    """Hosts are looked up exactly; a host that is no model's goes by path, and else gets 404."""
    by_path = [
        rule
        for model, route in sorted(routes.items())
        for rule in (*_rules(model, route, prefix=f"/v2/models/{model}"), _openai_rule(model, route))
    ]
    no_pin = _refusal({"prefix": "/models/", "headers": [_ANY_PIN]}, 404, reason=UNKNOWN_REVISION, error=_NO_PIN_HERE)
    nowhere = _refusal({"prefix": "/"}, 404, reason=UNKNOWN_MODEL, error=_NO_HOST)
    return {
        "name": ROUTE_CONFIGURATION,
        "virtual_hosts": [
            *(
                _virtual_host(
                    model, _domains(model, site), [*_grpc_rules(model, route), *_rules(model, route, prefix="/")]
                )
                for model, route in sorted(routes.items())
            ),
            _virtual_host("*", ["*"], [no_pin, *by_path, _grpc_refusal({"prefix": "/"}, NOT_FOUND, _NO_HOST), nowhere]),
        ],
    }


def _domains(model: str, site: Site) -> list[str]:
    scoped = f"{model}.{site.namespace}"
    return [model, scoped, f"{scoped}.svc", f"{scoped}.svc.{site.cluster_domain}"]


def _virtual_host(name: str, domains: list[str], rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "domains": domains,
        "routes": rules,
        "retry_policy": _retry_policy(),
        "request_body_buffer_limit": RETRY_BODY_BYTES,
    }


def _retry_policy() -> dict[str, Any]:
    """Repeat only what no model has seen.

    The first repetition goes to another pod of the same revision; if there is none, the next one goes to the fall-back.
    """
    return {
        "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-headers",
        "retriable_headers": [{"name": names.NOT_ADMITTED_HEADER, "present_match": True}],
        "num_retries": 3,
        "retry_back_off": {"base_interval": "0.010s", "max_interval": "0.100s"},
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                },
            }
        ],
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": "type.googleapis.com/"
                "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": 2,
            },
        },
    }


def _rules(model: str, route: Route, *, prefix: str) -> list[dict[str, Any]]:
    """In order: pins by header, pins by path, then by weight. A pin that names nothing is an error, never a guess."""
    match = {"prefix": "/"} if prefix == "/" else {"path_separated_prefix": prefix}
    versions = f"/v2/models/{model}/versions"
    unknown = _unknown(model, route)
    return [
        *_pinned(model, route, match),
        *(
            _forward({"path_separated_prefix": f"{versions}/{revision}"}, {"cluster": plain(model, revision)})
            for revision in route.pins
        ),
        _refusal({"path_separated_prefix": versions}, 404, reason=UNKNOWN_REVISION, error=unknown),
        _by_weight(model, route, match),
    ]


def _openai_rule(model: str, route: Route) -> dict[str, Any]:
    """OpenAI's paths name no model: below `/models/<model>/v1`, who reaches the router by another host says which.

    By weight only, because 200 models must fit into a ConfigMap: a pin is for the model's own host.
    """
    return _by_weight(model, route, {"path_separated_prefix": f"/models/{model}/v1"}, {"prefix_rewrite": "/v1"})


def _pinned(model: str, route: Route, match: dict[str, Any]) -> list[dict[str, Any]]:
    """The requests whose header names a revision."""
    roles = {"stable": route.stable, "canary": route.canary}
    pins = {pin: plain(model, revision) for pin, revision in roles.items() if revision is not None}
    pins |= {revision: plain(model, revision) for revision in route.pins}
    return [
        *(_forward({**match, "headers": [_header(pin)]}, {"cluster": cluster}) for pin, cluster in pins.items()),
        _refusal({**match, "headers": [_ANY_PIN]}, 404, reason=UNKNOWN_REVISION, error=_unknown(model, route)),
    ]


def _unknown(model: str, route: Route) -> str:
    return f"{model} has no such revision in service; it has {', '.join(route.pins) or 'none'}"


def _grpc_rules(model: str, route: Route) -> list[dict[str, Any]]:
    """The same for calls of gRPC, which go by host: their path names a method. The weights are the same numbers."""
    roles = {"stable": route.stable, "canary": route.canary}
    pins = {pin: revision for pin, revision in roles.items() if revision is not None}
    pins |= {revision: revision for revision in route.pins}
    return [
        *(
            _forward({**_GRPC, "headers": [_header(pin)]}, {"cluster": over_grpc(plain(model, revision))})
            if revision in route.grpc_pins
            else _grpc_refusal(
                {**_GRPC, "headers": [_header(pin)]}, UNIMPLEMENTED, f"revision {revision} of {model} has no gRPC"
            )
            for pin, revision in pins.items()
        ),
        _grpc_refusal({**_GRPC, "headers": [_ANY_PIN]}, NOT_FOUND, "the model has no such revision in service"),
        _grpc_by_weight(model, route),
    ]


def _grpc_by_weight(model: str, route: Route) -> dict[str, Any]:
    if not route.weights:
        return _grpc_refusal(_GRPC, UNAVAILABLE, f"{model} has no revision that is ready")
    if not any(map(is_grpc, route.grpc.values())):
        return _grpc_refusal(_GRPC, UNIMPLEMENTED, f"the revisions of {model} in service have no gRPC")
    return _weighted(_GRPC, route.weights, route.grpc)


def _by_weight(
    model: str, route: Route, match: dict[str, Any], more: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    if not route.weights:
        return _refusal(match, 503, reason=NO_READY_REVISION, error=f"{model} has no revision that is ready")
    return _weighted(match, route.weights, route.carriers, more)


def _weighted(
    match: dict[str, Any],
    weights: Mapping[str, int],
    carriers: Mapping[str, str],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    if len(weights) == 1:
        return _forward(match, {"cluster": carriers[next(iter(weights))], **more})
    weighted = [{"name": carriers[revision], "weight": weight} for revision, weight in sorted(weights.items())]
    return _forward(match, {"weighted_clusters": {"clusters": weighted}, **more})


def _header(value: str) -> dict[str, Any]:
    return {"name": names.REVISION_HEADER, "string_match": {"exact": value}}


def _forward(match: dict[str, Any], action: dict[str, Any]) -> dict[str, Any]:
    # No timeout: a request's own deadline rules, and an answer may be a long stream.
    return {"match": match, "route": {**action, "timeout": "0s"}}


def _refusal(match: dict[str, Any], status: int, *, reason: str, error: str) -> dict[str, Any]:
    body = json.dumps({"error": error, "reason": reason})
    headers = {"content-type": "application/json", names.NOT_ADMITTED_HEADER: "1"}
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": body}},
        "response_headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in headers.items()
        ],
    }


def _grpc_refusal(match: dict[str, Any], status: int, message: str) -> dict[str, Any]:
    """Envoy answers a call of gRPC with trailers only, and makes a status of the HTTP code; ours says more."""
    headers = {"grpc-status": str(status), "grpc-message": message, names.NOT_ADMITTED_HEADER: "1"}
    return {
        "match": {**match, "grpc": {}},
        "direct_response": {"status": 503},
        "response_headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in headers.items()
        ],
    }
