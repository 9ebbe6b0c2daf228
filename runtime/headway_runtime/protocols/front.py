"""The HTTP front: a plain ASGI function. The hot routes (inference and health) are answered here, the rest by FastAPI.

An inference request is read, decoded and validated on the event loop, waits in the engine, and is encoded on the event
loop again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from headway_api.names import CHECK_HEADER, NOT_ADMITTED_HEADER, REVISION_HEADER, TIMEOUT_HEADER
from headway_api.units import parse_duration

from headway_runtime.batching.engine import Answer, Work
from headway_runtime.batching.policy import Ticket
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
from headway_runtime.protocols.oip import error_body

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


class GoneError(Exception):
    """Nobody waits for the answer any more."""


class Front:
    """The application that uvicorn calls for the inference port."""

    def __init__(self, pod: Pod, fallback: App) -> None:
        self._pod = pod
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
        pod, began = self._pod, time.monotonic()  # the request's own deadline counts from here
        pod.in_flight += 1
        pod.arrivals.append(began)
        try:
            status, extra = 200, Headers()
            try:
                body, extra = await self._answer(path, headers, receive, began)
                pod.metrics.latency.observe(time.monotonic() - began)
            except RequestError as error:
                status, body, extra = error.status, error_body(str(error)), self._refusal(error)
            except GoneError:
                pod.metrics.rejections.labels("client_gone").inc()
                return
            except Exception as error:
                log("request_failed", level="error", error=error)
                pod.metrics.rejections.labels("internal").inc()
                status, body = 500, error_body(f"internal error: {type(error).__name__}; the pod's log has more")
            self._count(status)
            await self._send(send, status, body, extra)
        finally:
            pod.in_flight -= 1

    async def _answer(self, path: str, headers: Headers, receive: Receive, began: float) -> tuple[bytes, Headers]:
        if path not in self._infer_paths:
            raise UnknownModelError(self._unknown(path))
        model, settings = self._pod.serving()
        allowed = _allowed(headers, settings.queue_timeout)
        request = model.signature.decode(await self._read(receive, allowed))
        rows = model.layout.rows(request.sizes)
        if rows == 0:
            return model.signature.encode(request, model.signature.no_rows(request), self._identity), []
        limits = settings.limits
        if request.bytes > limits.bytes:
            raise TooLargeError(
                f"{request.bytes} bytes of inputs; at most {limits.bytes} are ever admitted (spec.batching.queue.bytes)"
            )
        if rows > limits.capacity:
            raise TooLargeError(
                f"{rows} rows; at most {limits.capacity} are ever admitted (spec.batching.queue.capacity)"
            )
        ticket = Ticket(
            id=next(self._pod.ids),
            group=model.layout.group_key(request.sizes, request.inputs),
            rows=rows,
            bytes=request.bytes,
            arrived=time.monotonic(),
            deadline=began + allowed,
        )
        slot: asyncio.Future[Answer | RequestError | None] = asyncio.get_running_loop().create_future()
        model.engine.submit(Work(ticket, request.inputs, request.sizes, slot, _gone(receive, slot)))
        answer = await slot
        if answer is None:
            raise GoneError
        if isinstance(answer, RequestError):
            raise answer
        self._pod.metrics.queue_time.observe(answer.waited)
        return model.signature.encode(request, answer.outputs, self._identity), [
            (b"x-headway-queue-ms", b"%.3f" % (answer.waited * 1e3)),
            (b"x-headway-batch-size", b"%d" % answer.batch_rows),
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

    def _refusal(self, error: RequestError) -> Headers:
        self._pod.metrics.rejections.labels(error.kind).inc()
        extra = error.headers()
        if not error.admitted:
            extra.append((NOT_ADMITTED_HEADER.encode(), b"1"))
        if error.closes:
            extra.append((b"connection", b"close"))
        return extra

    def _count(self, status: int) -> None:
        self._pod.metrics.requests.labels(str(status)).inc()
        self._pod.requests += 1
        self._pod.failures += status in (500, 504)

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


def _gone(receive: Receive, slot: "asyncio.Future[Any]") -> Callable[[], bool]:
    """Whether the client has left. uvicorn's request cycle, whose method `receive` is, knows it without a task."""
    cycle: Any = getattr(receive, "__self__", None)
    if not hasattr(cycle, "disconnected"):
        return slot.cancelled
    return lambda: bool(cycle.disconnected) or slot.cancelled()
