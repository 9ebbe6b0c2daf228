"""The answers that wait to run, in order, and the bounds of how many may. Pure.

The order is a virtual time of arrival: a level of priority counts as having arrived `LEVEL_SECONDS` earlier. Whoever
was preempted comes back to the place that it had, so that it goes before all that arrived after it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import StrEnum

from headway_runtime.batching.tickets import Priority
from headway_runtime.generation.sequence import TOKEN_BYTES, Request, Sequence
from headway_runtime.generation.settings import Settings


class Refusal(StrEnum):
    """Why a request was not admitted."""

    ANSWERS = "answers"
    BYTES = "bytes of prompts"


class WaitingLine:
    """Answers in line."""

    def __init__(self) -> None:
        self.prompt_bytes = 0
        self._sequences: list[Sequence] = []
        self._counts = dict.fromkeys(Priority, 0)

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        """The first in line first."""
        return iter(self._sequences)

    @property
    def highest(self) -> Priority:
        """The highest priority of those that wait; the lowest one if nobody does."""
        return max([level for level, count in self._counts.items() if count], default=Priority.LOW)

    def at_least(self, priority: Priority) -> int:
        """How many of this priority or a higher one wait."""
        return sum([count for level, count in self._counts.items() if level >= priority])

    def refuses(self, request: Request, settings: Settings) -> Refusal | None:
        """Which bound a request would break; None: there is room for all its answers."""
        n, prompt = request.generate.n, len(request.generate.prompt)
        if len(self) + n > settings.capacity:
            return Refusal.ANSWERS
        if self.prompt_bytes + n * prompt * TOKEN_BYTES > settings.prompt_bytes:
            return Refusal.BYTES
        return None

    def add(self, sequence: Sequence) -> None:
        """It waits from now on."""
        insort(self._sequences, sequence, key=_place)
        self._counts[sequence.request.priority] += 1
        self.prompt_bytes += sequence.prompt * TOKEN_BYTES

    def remove(self, sequence: Sequence) -> None:
        """It does not wait any more."""
        at = bisect_left(self._sequences, sequence.place, key=_place)
        assert self._sequences[at] is sequence
        del self._sequences[at]
        self._counts[sequence.request.priority] -= 1
        self.prompt_bytes -= sequence.prompt * TOKEN_BYTES


def _place(sequence: Sequence) -> tuple[float, int]:
    return sequence.place
