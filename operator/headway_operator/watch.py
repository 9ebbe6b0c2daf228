"""kopf's part: watch streams that reconnect, sign in and are told apart by labels at the server.

Only stateless handlers: each event does two infallible things, `Runner.saw`, because kopf swallows what an `on.event`
handler raises. No finalizer, no annotation, no daemon, no event of kopf's is ever written; no right to list namespaces
or CustomResourceDefinitions is needed, because scanning is off: the kinds are there before kopf starts (`app`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kopf
from headway_api import names

from headway_operator.connection import kopf_login
from headway_operator.debug import Debug
from headway_operator.kinds import WATCHED, Kind
from headway_operator.metrics import Metrics
from headway_operator.runner import Runner, selector

SERVER_TIMEOUT, CLIENT_TIMEOUT = 300, 330  # seconds of one watch request
CONNECT_TIMEOUT = 10.0  # seconds
PAGE = 500  # objects in one part of kopf's first list
OUTAGE_BACKOFFS = (1, 2, 4, 8, *([15] * 120))  # seconds: an API server that is away for half an hour ends no watch


def settings() -> kopf.OperatorSettings:
    """kopf, with everything off that would write."""
    chosen = kopf.OperatorSettings()
    chosen.watching.server_timeout = SERVER_TIMEOUT
    chosen.watching.client_timeout = CLIENT_TIMEOUT
    chosen.watching.connect_timeout = CONNECT_TIMEOUT
    chosen.watching.chunk_size = PAGE
    chosen.networking.error_backoffs = OUTAGE_BACKOFFS
    for kind in WATCHED:
        if labels := selector(kind):
            chosen.watching.label_selectors[_resource(kind)] = labels
    chosen.scanning.disabled = True
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.persistence.finalizer = f"{names.PREFIX}/unused"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{names.PREFIX}")
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"kopf.{names.PREFIX}")
    chosen.process.ultimate_exiting_timeout = 25
    return chosen


def registry(runner: Runner, metrics: Metrics, debug: Debug, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """The handlers: one for every kind, and the login."""
    handlers = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await kopf_login(kubeconfig)

    kopf.on.login(registry=handlers)(login)
    for kind in WATCHED:
        group, version, plural = _resource(kind)
        debug.asked(kind, "list")
        debug.asked(kind, "watch")
        kopf.on.event(group, version, plural, registry=handlers)(_handler(kind, runner, metrics))
    return handlers


def _handler(kind: Kind, runner: Runner, metrics: Metrics) -> Any:
    async def saw(event: Mapping[str, Any], **_: Any) -> None:
        metrics.watch_events.labels(kind.plural, event["type"] or "LISTED").inc()
        obj = dict(event["object"])
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.kind)
        runner.saw(obj, deleted=event["type"] == "DELETED")

    return saw


def _resource(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.api_version.rpartition("/")[2], kind.plural
