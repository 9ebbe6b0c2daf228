"""The objects of a namespace's router. None has an owner: recreating the only ModelDeployment must end no live router.

The pod template and Envoy's bootstrap are recorded in the ConfigMap when the router is first made, and rendered from
there ever after, so that a new version of the operator restarts no router.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway_api import names

from headway_operator.observed import Object
from headway_operator.router.bootstrap import bootstrap
from headway_operator.router.podtemplate import Image, pod_template
from headway_operator.router.render import Files, Published, Site, published

CLUSTERS_NAME = f"{names.ROUTER_NAME}-clusters"  # a ConfigMap of its own: both together may be larger than one can be
NAMES = (names.ROUTER_NAME, CLUSTERS_NAME)  # of everything that a router is made of
STATE_KEY = "state.json"
TEMPLATE_KEY = "pod.json"
BOOTSTRAP_KEY = "bootstrap.json"
REPLICAS = 2

LABELS = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
SELECTOR = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a router keeps from its first day, as JSON text."""

    template: str
    bootstrap: str


def pinned(live: Object | None, site: Site, image: Image) -> Pinned:
    """What the ConfigMap recorded, or what is to be recorded now."""
    data: Mapping[str, str] = (live or {}).get("data") or {}
    return Pinned(
        template=_kept(data, TEMPLATE_KEY, "spec") or _text(pod_template(site, image, LABELS)),
        bootstrap=_kept(data, BOOTSTRAP_KEY, "dynamic_resources") or _text(bootstrap(site)),
    )


def _kept(data: Mapping[str, str], key: str, part: str) -> str | None:
    """What a key holds, if it is an object that has this part: what a hand left there otherwise is no record."""
    text = data.get(key, "")
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return text if isinstance(value, dict) and isinstance(value.get(part), dict) else None


def stored(live: Object | None) -> Published | None:
    """What the ConfigMap says is published; None when there is nothing that can be read."""
    text = ((live or {}).get("data") or {}).get(STATE_KEY)
    try:
        return published.from_json(json.loads(text)) if text else None
    except ValueError:
        return None


def objects(site: Site, state: Published, files: Files, pin: Pinned) -> list[Object]:
    """All of them, in the order in which they are written.

    The state goes before the clusters' file: whatever is cut off in between, the state never calls a cluster confirmed
    that has left the file.
    """
    template = json.loads(pin.template)
    data = {
        BOOTSTRAP_KEY: pin.bootstrap,
        TEMPLATE_KEY: pin.template,
        STATE_KEY: _text(published.to_json(state)),
        files.listeners.name: files.listeners.text,
        files.routes.name: files.routes.text,
    }
    return [
        {**_object("v1", "ServiceAccount", site), "automountServiceAccountToken": False},
        {**_object("v1", "ConfigMap", site), "data": data},
        {
            **_object("v1", "ConfigMap", site, name=CLUSTERS_NAME),
            "data": {files.clusters.name: files.clusters.text},
        },
        {
            **_object("policy/v1", "PodDisruptionBudget", site),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": SELECTOR},
            },
        },
        {**_object("v1", "Service", site), "spec": _service()},
        {**_object("apps/v1", "Deployment", site), "spec": _deployment(template)},
    ]


def _object(api_version: str, kind: str, site: Site, *, name: str = names.ROUTER_NAME) -> Object:
    metadata = {"name": name, "namespace": site.namespace, "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _service() -> dict[str, Any]:
    """Every model of the namespace by path, under one name."""
    port = {"name": "http", "port": names.SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}
    return {"selector": dict(SELECTOR), "ports": [port]}


def _deployment(template: Object) -> dict[str, Any]:
    return {
        "replicas": REPLICAS,
        "selector": {"matchLabels": dict(SELECTOR)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": template,
    }


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
