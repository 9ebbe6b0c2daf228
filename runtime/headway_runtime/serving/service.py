"""From a request as a client wrote it to its reply: check, admit, batch, and account for it.

Lives on the event loop. A call costs no task and no future: the reply comes by one call of `Call.done`.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from headway_runtime.batching.engine import Answer, Work
from headway_runtime.batching.policy import Priority, Ticket
from headway_runtime.errors import ProgramFailedError, RequestError, TooLargeError
from headway_runtime.knobs import Settings
from headway_runtime.pod import Model, Pod
from headway_runtime.serving.account import Account
from headway_runtime.serving.cache import key_of
from headway_runtime.serving.splitting import split
from headway_runtime.serving.values import Call, Given, Reply, Request


class GoneError(Exception):
    """Nobody waits for the answer any more."""


class Service(Account):
    """What every protocol calls."""

    def expect(self, deadline: float, priority: Priority) -> None:
        """Raise QueueFullError or NotServingError where a request could only be refused, whatever it asks for: what it
        costs to read it is better spent on those that are admitted. An answer that is remembered needs no room in line.
        """
        model, _ = self._pod.serving()
        if isinstance(model, Model) and not self._pod.cache.enabled:
            model.engine.expect(deadline, priority)

    def call(self, given: Given, call: Call, served: tuple[Model, Settings] | None = None) -> None:
        """Answer a request by one call of `call.done`, which may come at once. Raises RequestError instead.

        `served`: what `Pod.computing` said when that was admitted of which this is a part; a pod that has begun to
        refuse requests meanwhile answers it all the same.
        """
        cache = self._pod.cache
        if cache.enabled:
            cache.answer(key_of(given), call, partial(self._compute, given, served))
        else:
            self._compute(given, served, call)

    def _compute(self, given: Given, served: tuple[Model, Settings] | None, call: Call) -> None:
        model, settings = served or self._pod.computing()
        if model.pipeline is not None and model.pipeline.touches(given):
            model.pipeline.call(given, call, self._run)
        else:
            self._run(model, settings, given, call)

    def _run(self, model: Model, settings: Settings, given: Given, call: Call) -> None:
        """Answer what one program is asked."""
        request = model.intake.request(given)
        if request.rows == 0:
            call.done(Reply(model.intake.outputs(request, model.intake.no_rows(request))))
            return
        _check_size(request, settings)
        engine = model.engine
        ticket = Ticket(
            next(self._pod.ids),
            request.group,
            request.rows,
            request.bytes,
            time.monotonic(),
            call.deadline,
            request.padded,
            call.priority,
        )
        slot = _Waiting(self._pod, model, request, call)
        most = settings.limits.max_batch
        if request.rows <= most or not model.intake.splits:
            engine.submit(Work(ticket, request.inputs, request.sizes, slot, call.gone))
            return
        parts = split(request, ticket, self._pod.ids, most=most, engine=engine, slot=slot, gone=call.gone)
        engine.submit(*parts)

    async def infer(
        self,
        given: Given,
        *,
        deadline: float,
        gone: Callable[[], bool] | None = None,
        priority: Priority = Priority.NORMAL,
        served: tuple[Model, Settings] | None = None,
    ) -> Reply:
        """The same for who can wait. Raises RequestError, or GoneError when `gone` said so."""
        future: asyncio.Future[Reply | RequestError | None] = asyncio.get_running_loop().create_future()

        def done(result: Reply | RequestError | None) -> None:
            if not future.done():
                future.set_result(result)

        self.call(given, Call(deadline, gone or future.cancelled, done, priority), served)
        result = await future
        if result is None:
            raise GoneError
        if isinstance(result, RequestError):
            raise result
        return result


class _Waiting:
    """The engine's handle of a request: turns its answer into a reply."""

    __slots__ = ("_call", "_model", "_pod", "_request")

    def __init__(self, pod: Pod, model: Model, request: Request, call: Call) -> None:
        self._pod, self._model, self._request, self._call = pod, model, request, call

    def __call__(self, result: Answer | RequestError | None) -> None:
        if isinstance(result, Answer):
            self._pod.metrics.queued(self._call.priority, result.waited)
            outputs = self._model.intake.outputs(self._request, result.outputs)
            self._call.done(Reply(outputs, result.waited, result.batch_rows))
            drift = self._pod.drift
            if drift is not None and drift.due(now := time.monotonic()):
                drift.see(self._request.inputs, result.outputs, now)
        elif type(result) is ProgramFailedError:
            self._call.done(self._model.intake.blame(self._request) or result)
        else:
            self._call.done(result)


def _check_size(request: Request, settings: Settings) -> None:
    """Raises TooLargeError for what could never be admitted."""
    limits = settings.limits
    if request.bytes > limits.bytes:
        raise TooLargeError(
            f"{request.bytes} bytes of inputs; at most {limits.bytes} are ever admitted (spec.batching.queue.bytes)"
        )
    if request.rows > limits.capacity:
        raise TooLargeError(
            f"{request.rows} rows; at most {limits.capacity} are ever admitted (spec.batching.queue.capacity)"
        )
