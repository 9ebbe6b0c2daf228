"""The admin port, read-only: `/report` for the operator, `/metrics` for Prometheus, `/healthz` for the kubelet."""

from collections.abc import Callable

from headway_runtime.metrics import CONTENT_TYPE
from headway_runtime.pod import Pod
from headway_runtime.protocols.http.asgi import Receive, Scope, Send


class Admin:
    """ASGI application. `engine_alive` says whether the engine thread still runs."""

    def __init__(self, pod: Pod, engine_alive: Callable[[], bool]) -> None:
        self._pod = pod
        self._engine_alive = engine_alive

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"this port is read-only\n"
        if path == "/report":
            return 200, "application/json", self._pod.report().to_json().encode()
        if path == "/metrics":
            self._pod.metrics.in_flight.set(self._pod.in_flight)
            if self._pod.model is not None:
                self._pod.metrics.waiting.set(self._pod.model.waiting)
            return 200, CONTENT_TYPE, self._pod.metrics.render()
        if path == "/healthz":
            return self._health()
        return 404, "text/plain", b"this port serves /report, /metrics and /healthz\n"

    def _health(self) -> tuple[int, str, bytes]:
        if not self._engine_alive():
            return 503, "text/plain", b"the engine thread has ended\n"
        if self._pod.stuck():
            return 503, "text/plain", b"the current run has not come back\n"
        return 200, "text/plain", b"ok\n"
