"""ModelStreamInfer: many requests in one call, answered in their order. An error is an answer, and ends nothing.

A request counts, waits and is bounded as one by itself would be. A client that sends without reading is cut off when
too much waits for it (`exchange`).
"""

import time
from collections import deque
from functools import partial

from headway_runtime.errors import RequestError
from headway_runtime.logs import log
from headway_runtime.protocols.grpc import tensors
from headway_runtime.protocols.grpc.asked import Asked, read
from headway_runtime.protocols.grpc.bounds import LARGE
from headway_runtime.protocols.grpc.exchange import Exchange
from headway_runtime.protocols.grpc.infer import allowed, priority
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.grpc.refusals import hidden
from headway_runtime.protocols.grpc.wire import Status
from headway_runtime.serving.service import Service
from headway_runtime.serving.values import Call, Reply

_FINAL = "triton_final_response"


class _Turn:
    """One request of a stream: its answer once there is one."""

    __slots__ = ("answer", "began", "final", "identifier", "over", "raw")

    def __init__(self, began: float) -> None:
        self.began = began
        self.identifier = ""
        self.raw = True
        self.final = False
        self.over = False  # accounted for
        self.answer: bytes | None = None


class StreamInfer:
    """Receiver of one ModelStreamInfer call."""

    def __init__(self, service: Service, exchange: Exchange, model: str, revision: str) -> None:
        self._service = service
        self._exchange = exchange
        self._model, self._revision = model, revision
        self._turns: deque[_Turn] = deque()
        self._ended = False
        self._deadline = time.monotonic() + allowed(exchange.metadata, float("inf"))
        self._priority = priority(exchange.metadata)
        self.refused: RequestError | None = None

    def message(self, message: bytes | memoryview) -> None:
        """One request."""
        turn = _Turn(self._service.begin())
        self._turns.append(turn)
        work = partial(read, message, self._model, self._revision)
        if len(message) > LARGE:
            self._exchange.aside(work, partial(self._ask, turn))
        else:
            self._ask(turn, work())

    def half_closed(self) -> None:
        """No more requests."""
        self._ended = True
        self._advance()

    def over(self, status: Status | None) -> None:
        """Account for what was not answered."""
        for turn in self._turns:
            self._account(turn, None, "client_gone" if status is None else None)
        self._turns.clear()

    def _ask(self, turn: _Turn, asked: Asked) -> None:
        turn.identifier, turn.raw, turn.final = asked.identifier, asked.raw, asked.final
        try:
            wait = self._service.allowed()
            if isinstance(asked.given, RequestError):
                raise asked.given
            deadline = min(self._deadline, turn.began + (wait if asked.seconds is None else min(wait, asked.seconds)))
            call = Call(deadline, self._exchange.is_gone, lambda result: self._done(turn, result), self._priority)
            self._service.call(asked.given, call)
        except RequestError as error:
            self._done(turn, error)

    def _done(self, turn: _Turn, result: Reply | RequestError | None) -> None:
        if turn.over or result is None:
            return
        try:
            turn.answer = self._encoded(turn, result)
        except Exception as error:  # whatever it is, the answers of this run's other requests must go out
            log("request_failed", level="error", error=error)
            result = hidden(error)
            turn.answer = self._encoded(turn, result)
        if isinstance(result, RequestError):
            self._account(turn, result.status, result)
        else:
            self._account(turn, 200, None)
        self._advance()

    def _encoded(self, turn: _Turn, result: Reply | RequestError) -> bytes:
        answer = pb.ModelStreamInferResponse()
        inner = answer.infer_response
        inner.id = turn.identifier
        if turn.final:
            inner.parameters[_FINAL].bool_param = True
        if isinstance(result, Reply):
            inner.model_name, inner.model_version = self._model, self._revision
            tensors.fill(inner, result, raw=turn.raw)
        else:
            answer.error_message = str(result)
        return bytes(answer.SerializeToString())

    def _advance(self) -> None:
        while self._turns and (answer := self._turns[0].answer) is not None:
            self._turns.popleft()
            self._exchange.send(answer)
        if self._ended and not self._turns:
            self._exchange.finish(Status.OK)

    def _account(self, turn: _Turn, status: int | None, refused: RequestError | str | None) -> None:
        if not turn.over:
            turn.over = True
            self._service.end(turn.began, status, refused)
