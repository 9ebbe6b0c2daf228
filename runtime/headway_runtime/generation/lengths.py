"""How long the latest sequences were: what `maxLength` and the number of sequences that fit are judged by. Pure."""

from collections import deque
from collections.abc import Sequence

REMEMBERED = 4096
ENOUGH = 100  # sequences before which nothing is said


class RecentLengths:
    """Tokens of sequences that have ended, prompt and answer together."""

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=REMEMBERED)

    def add(self, length: int) -> None:
        """One has ended."""
        self._lengths.append(length)

    def latest(self) -> list[int]:
        """Ascending; none while there are too few to say anything."""
        return sorted(self._lengths) if len(self._lengths) >= ENOUGH else []


def quantile(ascending: Sequence[int], share: float) -> int:
    """The length that this share of them does not exceed."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
