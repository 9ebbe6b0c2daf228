"""ModelInfer: from a message to `serving.Service` and back, without a task or a future for the call."""

import asyncio
from functools import partial

from headway_api.names import PRIORITY_HEADER, TIMEOUT_HEADER
from headway_api.units import parse_duration
from hpack import NeverIndexedHeaderTuple

from headway_runtime.batching.policy import Priority
from headway_runtime.errors import InvalidRequestError, RequestError, SlowBodyError
from headway_runtime.logs import log
from headway_runtime.protocols.grpc import tensors, wire
from headway_runtime.protocols.grpc.asked import Asked, read
from headway_runtime.protocols.grpc.bounds import LARGE
from headway_runtime.protocols.grpc.exchange import Exchange, Header
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.grpc.refusals import refuse
from headway_runtime.protocols.grpc.wire import Status
from headway_runtime.serving.service import Service
from headway_runtime.serving.values import Call, Reply

_TIMEOUT = TIMEOUT_HEADER.encode()
_PRIORITY = PRIORITY_HEADER.encode()
_PRIORITIES = {priority.name.lower(): priority for priority in Priority}


class Infer:
    """Receiver of one ModelInfer call. Raises RequestError from `admit` when the pod does not serve."""

    def __init__(self, service: Service, exchange: Exchange, model: str, revision: str) -> None:
        self._service = service
        self._exchange = exchange
        self._model, self._revision = model, revision
        self._began = service.begin()  # the call's own deadline counts from here
        self._allowed = 0.0
        self._priority = Priority.NORMAL
        self._timer: asyncio.TimerHandle | None = None
        self._message: bytes | memoryview | None = None
        self._identifier = ""
        self._raw = True
        self.refused: RequestError | None = None

    def admit(self) -> None:
        """Read the call's metadata. Raises RequestError or WireError."""
        metadata = self._exchange.metadata
        self._allowed = allowed(metadata, self._service.allowed())
        self._priority = priority(metadata)
        self._timer = asyncio.get_running_loop().call_later(self._allowed, self._late)

    def message(self, message: bytes | memoryview) -> None:
        """The request."""
        if self._message is not None:
            raise InvalidRequestError("a second message: ModelInfer takes one")
        self._message = message

    def half_closed(self) -> None:
        """The request has arrived in full."""
        self._stop_waiting()
        if self._message is None:
            raise InvalidRequestError("the call ended without a message")
        message, self._message = self._message, None
        self._service.expect(self._began + self._allowed, self._priority)
        work = partial(read, message, self._model, self._revision)
        if len(message) > LARGE:
            self._exchange.aside(work, self._ask)
        else:
            self._ask(work())

    def over(self, status: Status | None) -> None:
        """Account for it."""
        self._stop_waiting()
        if status is None:
            self._service.end(self._began, None, "client_gone")
        else:
            self._service.end(self._began, http_of(status, self.refused), self.refused)

    def _ask(self, asked: Asked) -> None:
        if isinstance(asked.given, RequestError):
            raise asked.given
        self._identifier, self._raw = asked.identifier, asked.raw
        seconds = self._allowed if asked.seconds is None else min(self._allowed, asked.seconds)
        self._service.call(asked.given, Call(self._began + seconds, self._exchange.is_gone, self._done, self._priority))

    def _done(self, result: Reply | RequestError | None) -> None:
        try:
            if isinstance(result, Reply):
                self._exchange.send(encoded(result, self._model, self._revision, self._identifier, raw=self._raw))
                self._exchange.finish(Status.OK, metadata=facts(result))
            elif result is not None:
                refuse(self._exchange, result)
        except Exception as error:  # whatever it is, the answers of this run's other requests must go out
            log("request_failed", level="error", error=error)
            refuse(self._exchange, error)

    def _late(self) -> None:
        refuse(
            self._exchange,
            SlowBodyError(
                f"the deadline passed before the message had arrived ({self._allowed:g} s); no model has seen it"
            ),
        )

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def allowed(metadata: dict[bytes, bytes], queue_timeout: float) -> float:
    """Seconds that a call may wait: the least of what the pod, gRPC's deadline and ours allow."""
    least = queue_timeout
    if (deadline := metadata.get(b"grpc-timeout")) is not None:
        least = min(least, wire.seconds(deadline))
    if (ours := metadata.get(_TIMEOUT)) is not None:
        try:
            least = min(least, parse_duration(ours.decode("latin-1"), f"metadata {TIMEOUT_HEADER}"))
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
    return least


def priority(metadata: dict[bytes, bytes]) -> Priority:
    """Raises InvalidRequestError."""
    value = metadata.get(_PRIORITY)
    if value is None:
        return Priority.NORMAL
    found = _PRIORITIES.get(value.decode("latin-1").strip().lower())
    if found is None:
        raise InvalidRequestError(
            f"metadata {PRIORITY_HEADER}: {value[:40].decode('latin-1')!r} is not one of {', '.join(_PRIORITIES)}"
        )
    return found


def encoded(reply: Reply, model: str, revision: str, identifier: str, *, raw: bool) -> bytes:
    """The answer's message."""
    answer = pb.ModelInferResponse(model_name=model, model_version=revision, id=identifier)
    tensors.fill(answer, reply, raw=raw)
    return bytes(answer.SerializeToString())


def facts(reply: Reply) -> list[Header]:
    """What HTTP says in headers, as trailing metadata: different in every answer, so never indexed."""
    found: list[Header] = [
        NeverIndexedHeaderTuple(b"x-headway-queue-ms", b"%.3f" % (reply.queue_seconds * 1e3)),
        NeverIndexedHeaderTuple(b"x-headway-batch-size", b"%d" % reply.batch_rows),
    ]
    if reply.cached:
        found.append((b"x-headway-cache", b"hit"))
    return found


def http_of(status: Status, refused: RequestError | None) -> int:
    """The HTTP status by which the metrics and the report count it."""
    if refused is not None:
        return refused.status
    return {Status.OK: 200, Status.RESOURCE_EXHAUSTED: 413, Status.UNIMPLEMENTED: 415, Status.INTERNAL: 500}.get(
        status, 400
    )
