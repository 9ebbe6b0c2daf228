"""Who is turned away, with what words: the line is full, or moves too slowly, or it has become too late."""

from math import ceil

from headway_runtime.batching.pace import Pace
from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    OverloadedError,
    QueueFullError,
)
from headway_runtime.generation.line import Refusal
from headway_runtime.generation.sequence import Request
from headway_runtime.generation.settings import Settings


class Departures:
    """How fast answers end, while the program runs: how long who comes now will wait for a place."""

    def __init__(self) -> None:
        self._pace = Pace(1)
        self._seconds = 0.0

    def ran(self, seconds: float, ended: int) -> None:
        """A step took so long, and so many answers ended with it."""
        self._seconds += seconds
        if ended:
            self._pace.ran(self._seconds, ended)
            self._seconds = 0.0

    def until(self, answers: int) -> float:
        """Seconds until so many more will have ended; 0 while too little is known."""
        return self._pace.until_run(max(0, answers))


def unanswerable(request: Request, longest: int) -> InvalidRequestError | None:
    """Why no pod of this size can ever answer a request."""
    length = len(request.generate.prompt)
    if not length:
        return InvalidRequestError("the prompt is empty: at least one token is needed to go on from")
    if length >= longest:
        return InvalidRequestError(
            f"the prompt has {length} tokens, and a sequence has room for {longest} in this pod, answer included "
            f"(spec.generation.maxLength, cacheBytes): shorten it to {longest - 1} or less"
        )
    return None


def overloaded(request: Request, now: float, wait: float) -> OverloadedError | None:
    """It would begin too late for its client. A preferred request does not wait for all that is before it."""
    left = min(request.stream.first_by, request.stream.deadline) - now
    if request.priority is Priority.HIGH or not 0 < left < wait:
        return None
    return OverloadedError(
        f"this pod would need {wait:.2g} s until this request can begin, and it has {left:.2g} s left "
        f"(spec.batching.queue.timeout, or its own deadline); try again in {_whole(wait)} s",
        retry_after=_whole(wait),
    )


def queue_full(refused: Refusal, settings: Settings, wait: float) -> QueueFullError:
    """The line has reached a bound."""
    limit, field = settings.capacity, "capacity"
    if refused is Refusal.BYTES:
        limit, field = settings.prompt_bytes, "bytes"
    seconds = _whole(wait)
    message = f"the queue of this pod is full: at most {limit} {refused} wait (spec.batching.queue.{field})"
    return QueueFullError(f"{message}; try again in {seconds} s", retry_after=seconds)


def too_late(request: Request, now: float) -> DeadlineExceededError:
    """Its time is over."""
    waited = now - request.arrived
    if request.begun:
        made = sum(sequence.answer for sequence in request.sequences)
        return DeadlineExceededError(
            f"the deadline passed after {waited:.3g} s, before the answer was complete ({made} tokens of it were made)"
        )
    return DeadlineExceededError(
        f"the deadline passed while the request waited ({waited * 1e3:.0f} ms); no model has seen it"
    )


def _whole(seconds: float) -> int:
    return max(1, ceil(seconds))
