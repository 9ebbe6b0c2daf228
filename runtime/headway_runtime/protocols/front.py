"""The HTTP front: a plain ASGI function. The hot routes (inference and health) are answered here, the rest by FastAPI.

An inference request is read, decoded and validated on the event loop, waits in the engine, and is encoded on the event
loop again.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from headway_api.names import CHECK_HEADER, NOT_ADMITTED_HEADER, REVISION_HEADER, TIMEOUT_HEADER
from headway_api.units import parse_duration

from headway_runtime.errors import (
    BodiesFullError,
    InvalidRequestError,
    RequestError,
    SlowBodyError,
    TooLargeError,
    UnknownModelError,
    UnsupportedEncodingError,
)
from headway_runtime.logs import log
from headway_runtime.pod import Pod
from headway_runtime.protocols import oip
from headway_runtime.protocols.oip import error_body
from headway_runtime.serving.service import GoneError, Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY = 64 * 2**20  # bytes of a request
MAX_BODIES = 4 * MAX_BODY  # bytes of all requests that are being read
_CHECK = CHECK_HEADER.encode()
_TIMEOUT = TIMEOUT_HEADER.encode()
_JSON = (b"content-type", b"application/json")


class Front:
    """The application that uvicorn calls for the inference port."""

    def __init__(self, pod: Pod, fallback: App) -> None:
        self._pod = pod
        self._service = Service(pod)
        self._fallback = fallback
        self._held = 0  # bytes of bodies that have not arrived in full
        model, revision = pod.config.model, pod.config.revision
        self._identity = {"model_name": model, "model_version": revision}
        self._revision = (REVISION_HEADER.encode(), revision.encode())
        bases = (f"/v2/models/{model}", f"/v2/models/{model}/versions/{revision}")
        self._infer_paths = frozenset(f"{base}/infer" for base in bases)
        self._ready_paths = frozenset({"/v2/health/ready", *(f"{base}/ready" for base in bases)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        if path.endswith("/infer") and scope["method"] == "POST":
            await self._infer(path, scope["headers"], receive, send)
        elif path in self._ready_paths:
            await self._ready(scope["headers"], send)
        elif path == "/v2/health/live":
            await self._health(send, name="live", good=True)
        elif path in self._infer_paths:
            await self._send(send, 405, error_body(f"{scope['method']} {path}: use POST"), [(b"allow", b"POST")])
        else:
            await self._fallback(scope, receive, _closing(send) if self._pod.closing else send)

    async def _health(self, send: Send, *, name: str, good: bool) -> None:
        body: dict[str, Any] = {name: good}
        if not good:
            body["error"] = self._pod.describe()
        await self._send(send, 200 if good else 503, orjson.dumps(body), [])

    async def _ready(self, headers: Headers, send: Send) -> None:
        """Ready or not; to a router a draining pod says that it still serves, for want of a better one."""
        if self._pod.serves_in_need and any(name == _CHECK for name, _ in headers):
            await self._send(
                send, 200, orjson.dumps({"ready": False, "draining": True}), [(b"x-envoy-degraded", b"true")]
            )
        else:
            await self._health(send, name="ready", good=self._pod.ready)

    async def _infer(self, path: str, headers: Headers, receive: Receive, send: Send) -> None:
        began = self._service.begin()  # the request's own deadline counts from here
        status, refused, extra = 200, None, Headers()
        try:
            body, extra = await self._answer(path, headers, receive, began)
        except RequestError as error:
            refused = error
            status, body, extra = error.status, error_body(str(error)), _extra(error)
        except GoneError:
            self._service.end(began, None, "client_gone")
            return
        except Exception as error:
            log("request_failed", level="error", error=error)
            refused = RequestError(f"internal error: {type(error).__name__}; the pod's log has more")
            status, body = 500, error_body(str(refused))
        try:
            await self._send(send, status, body, extra)
        finally:
            self._service.end(began, status, refused)

    async def _answer(self, path: str, headers: Headers, receive: Receive, began: float) -> tuple[bytes, Headers]:
        if path not in self._infer_paths:
            raise UnknownModelError(self._unknown(path))
        allowed = _allowed(headers, self._service.allowed())
        identifier, given = oip.decode(await self._read(receive, allowed))
        reply = await self._service.infer(given, deadline=began + allowed, gone=_gone(receive))
        return oip.encode(identifier, reply, self._identity), [
            (b"x-headway-queue-ms", b"%.3f" % (reply.queue_seconds * 1e3)),
            (b"x-headway-batch-size", b"%d" % reply.batch_rows),
        ]

    async def _read(self, receive: Receive, allowed: float) -> bytes | bytearray:
        """The whole body. What all requests together have sent so far is bounded, and so is the time."""
        whole = bytearray()
        try:
            async with asyncio.timeout(allowed):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise GoneError
                    part: bytes = message.get("body", b"")
                    if not whole and not message.get("more_body"):
                        return part
                    whole += part
                    self._held += len(part)
                    if len(whole) > MAX_BODY:
                        raise TooLargeError(f"more than {MAX_BODY} bytes; that is the most that is read")
                    if self._held > MAX_BODIES:
                        raise BodiesFullError(f"{MAX_BODIES} bytes of requests are being read", retry_after=1)
                    if not message.get("more_body"):
                        return whole
        except TimeoutError:
            raise SlowBodyError(
                f"the deadline passed before the body had arrived ({len(whole)} bytes in {allowed:g} s); no model has"
                " seen it"
            ) from None
        finally:
            self._held -= len(whole)

    def _unknown(self, path: str) -> str:
        model, revision = self._pod.config.model, self._pod.config.revision
        return f"{path[:200]} is not served here: this pod serves model {model!r}, version {revision!r}"

    async def _send(self, send: Send, status: int, body: bytes, extra: Headers) -> None:
        headers = [_JSON, (b"content-length", b"%d" % len(body)), self._revision, *extra]
        if self._pod.closing:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _closing(send: Send) -> Send:
    """The same, for answers that end their connection."""

    async def closing(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    return closing


def _allowed(headers: Headers, queue_timeout: float) -> float:
    """Seconds the request may wait; also refuses forms of a body that are not read here."""
    allowed = queue_timeout
    for name, value in headers:
        if name == _TIMEOUT:
            try:
                allowed = min(allowed, parse_duration(value.decode("latin-1"), f"header {TIMEOUT_HEADER}"))
            except ValueError as error:
                raise InvalidRequestError(str(error)) from None
        elif name == b"content-length" and int(value) > MAX_BODY:
            raise TooLargeError(f"{value.decode()} bytes; at most {MAX_BODY} are read")
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedEncodingError(
                f"content-encoding {value.decode('latin-1')[:40]!r} is not read here; send plain JSON"
            )
        elif name == b"inference-header-content-length":
            raise UnsupportedEncodingError("the binary tensor extension is not read here; send tensors as JSON")
    return allowed


def _extra(error: RequestError) -> Headers:
    extra = error.headers()
    if not error.admitted:
        extra.append((NOT_ADMITTED_HEADER.encode(), b"1"))
    if error.closes:
        extra.append((b"connection", b"close"))
    return extra


def _gone(receive: Receive) -> Callable[[], bool] | None:
    """Whether the client has left. uvicorn's request cycle, whose method `receive` is, knows it without a task."""
    cycle: Any = getattr(receive, "__self__", None)
    return (lambda: bool(cycle.disconnected)) if hasattr(cycle, "disconnected") else None
