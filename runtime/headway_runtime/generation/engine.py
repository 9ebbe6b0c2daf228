"""Continuous batching: the thread that runs step after step, and what the event loop asks of it.

    event loop                        engine thread
    submit, cancel ──► scheduler ──►  plan, run, sample, advance ──► deliver: pieces, ends, a record
    sweep, apply      (one lock)      (asleep while there is nothing to do)

The lock is never held while the program runs or text is made. What leaves goes to the event loop once for each step.
"""

import threading
import time
from collections.abc import Iterable

import torch
from headway_api.podconfig import GenerationReport
from tokenizers import Tokenizer

from headway_runtime.errors import CutShortError, NotServingError, ProgramFailedError, RequestError
from headway_runtime.generation import refusals
from headway_runtime.generation.delivery import Deliver, Delivery
from headway_runtime.generation.drafting import DraftProgram, Lookup, Proposer
from headway_runtime.generation.forward import Decoder
from headway_runtime.generation.room import Room
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.scheduler import Scheduler
from headway_runtime.generation.sequence import Request
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.settling import Settling
from headway_runtime.generation.step import Step
from headway_runtime.generation.stepper import Stepper
from headway_runtime.generation.values import Generate, Stream

LONGEST_SLEEP = 60.0  # seconds


class Engine:
    """`run` is the life of its thread; everything else may be called from any other.

    `draft`: a smaller decoder, whose cache has as many blocks, that proposes tokens. It belongs to the thread, as do
    `decoder` and `sampler`.
    """

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        tokenizer: Tokenizer,
        settings: Settings,
        deliver: Deliver,
        *,
        draft: Decoder | None = None,
    ) -> None:
        blocks = decoder.cache.blocks
        if draft is not None and draft.cache.blocks != blocks:
            raise ValueError(f"the draft's cache has {draft.cache.blocks} blocks, the decoder's {blocks}")
        proposer: Proposer | None = None
        if settings.drafts:
            proposer = Lookup() if draft is None else DraftProgram(draft, sampler)
        self._decoder = decoder
        self._scheduler = Scheduler(blocks, settings)
        self._stepper = Stepper(decoder, sampler, tokenizer, proposer)
        self._deliver = deliver
        self._departures = refusals.Departures()
        self._room = Room(decoder)
        self._changed = threading.Condition(threading.Lock())
        self._gone: list[Request] = []  # cancelled while a step may hold them
        self._numbers = 0
        self._stopping = False
        self._running_since: float | None = None
        self._threads = torch.get_num_threads()
        self.apply(settings)

    @property
    def waiting(self) -> int:
        """Answers in line."""
        return len(self._scheduler.line)

    @property
    def unfinished(self) -> int:
        """Requests that have not ended."""
        return len(self._scheduler.requests)

    def apply(self, settings: Settings) -> None:
        """New knobs: they rule from the next step on."""
        with self._changed:
            self._scheduler.settings = settings
            self._stepper.reject_non_finite = settings.reject_non_finite
            self._changed.notify()

    def submit(self, generate: Generate, stream: Stream) -> int:
        """Put a request in line; returns its number. Raises InvalidRequestError, QueueFullError, OverloadedError, or
        NotServingError once `stop` was called.
        """
        now = time.monotonic()
        with self._changed:
            if self._stopping:
                raise NotServingError("the pod is ending; send the request again")
            scheduler, settings = self._scheduler, self._scheduler.settings
            self._numbers += 1
            request = Request(self._numbers, generate, stream, now)
            if not settings.prefix_cache:
                request.salt = request.id.to_bytes(8, "big")
            if (invalid := refusals.unanswerable(request, scheduler.longest)) is not None:
                raise invalid
            before = scheduler.before(stream.priority) + generate.n - settings.max_sequences
            wait = self._departures.until(before)
            if (late := refusals.overloaded(request, now, wait)) is not None:
                raise late
            if (refused := scheduler.add(request)) is not None:
                raise refusals.queue_full(refused, settings, wait)
            self._changed.notify()
        return request.id

    def cancel(self, number: int) -> None:
        """Nobody waits for this request any more: its stream is ended with None, if it was not before."""
        with self._changed:
            request = self._scheduler.requests.get(number)
            if request is None or request.ended:
                return
            if request.running:
                request.ended = True
                self._gone.append(request)
            else:
                self._scheduler.drop(request)
                self._stepper.forget(request)
        self._deliver([Delivery(request.stream, ended=True)], None)

    def sweep(self) -> None:
        """Drop what waits in vain, while long steps keep the thread from doing it."""
        now = time.monotonic()
        with self._changed:
            late = self._expire(now, between_steps=False)
        if late:
            self._deliver(late, None)

    def stop(self) -> None:
        """End the thread after its current step. What has not ended then is answered with an error; to let it end
        first, wait until there is nothing `unfinished`.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def busy_for(self) -> float:
        """Seconds that the current step has taken so far; 0 between steps."""
        since = self._running_since
        return 0.0 if since is None else time.monotonic() - since

    def report(self) -> GenerationReport:
        """What there is room for, now."""
        with self._changed:
            return self._room.report(self._scheduler)

    def run(self) -> None:
        """The thread's life: returns once `stop` was called. However it ends, every stream is ended."""
        torch.set_num_threads(self._threads)  # torch has a number of compute threads for each thread that calls
        try:
            with torch.inference_mode():
                while (step := self._next()) is not None:
                    self._once(step)
        finally:
            self._close()

    def _next(self) -> Step | None:
        """Wait for something to run; None when it is time to end."""
        while True:
            late: list[Delivery] = []
            with self._changed:
                for request in self._gone:
                    self._scheduler.drop(request)
                    self._stepper.forget(request)
                self._gone.clear()
                if self._stopping:
                    return None
                now = time.monotonic()
                late = self._expire(now)
                step = self._scheduler.plan()
                if not step.works and not late:
                    self._changed.wait(min(LONGEST_SLEEP, max(0.0, self._scheduler.earliest - now)))
            if late:
                self._deliver(late, None)
            if step.works:
                return step

    def _once(self, step: Step) -> None:
        began = self._running_since = time.monotonic()
        outcome = self._stepper.run(step)
        self._running_since = None
        with self._changed:
            settling = Settling(self._scheduler, time.monotonic())
            deliveries = settling.settle(outcome)
            for request in settling.ended:
                self._stepper.forget(request)
            record = settling.record(step, began)
            self._departures.ran(record.seconds, len(record.lengths))
            self._room.ended(record.lengths)
        self._deliver(deliveries, record)

    def _expire(self, now: float, *, between_steps: bool = True) -> list[Delivery]:
        late = self._scheduler.expire(now, between_steps=between_steps)
        for request in late:
            self._stepper.forget(request)
        return _ends((request, refusals.too_late(request, now)) for request in late)

    def _close(self) -> None:
        with self._changed:
            asked, self._stopping = self._stopping, True
            left = [request for request in self._scheduler.requests.values() if not request.ended]
            for request in left:
                self._scheduler.drop(request)
        ends = _ends((request, _ending(request, asked=asked)) for request in left)
        if ends:
            self._deliver(ends, None)


def _ends(errors: Iterable[tuple[Request, RequestError]]) -> list[Delivery]:
    return [Delivery(request.stream, ended=True, outcome=error) for request, error in errors]


def _ending(request: Request, *, asked: bool) -> RequestError:
    """Why a request ends with the engine, which was `asked` to end, or has failed."""
    if request.begun:
        return CutShortError() if asked else ProgramFailedError("the pod ended before this answer was complete")
    return NotServingError("the pod is ending; send the request again")
