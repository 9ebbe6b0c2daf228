"""Slots and blocks for those that begin, and who must give them up: the arithmetic of rules 2 and 7. Pure."""

from collections.abc import Sequence as Many

from headway_runtime.batching.tickets import Priority
from headway_runtime.generation import holdings
from headway_runtime.generation.blocks import BlockPool
from headway_runtime.generation.sequence import Sequence, blocks_for


class Places:
    """As they would be with what `take` has granted; nothing happens to pool or sequences. `running`: by standing.

    `most`: sequences at a time. `headroom`: blocks that each should have to grow by.
    """

    def __init__(self, pool: BlockPool, running: Many[Sequence], most: int, headroom: int) -> None:
        self._pool = pool
        self._running = list(running)  # those that stay
        self._most = most
        self._headroom = headroom
        self._begun = 0
        self._free = pool.available - holdings.committed(running)

    @property
    def full(self) -> bool:
        """Whether no slot is left."""
        return len(self._running) + self._begun >= self._most

    @property
    def lowest(self) -> Priority:
        """Of the levels of those that run."""
        return self._running[-1].level if self._running else Priority.HIGH

    def take(self, sequence: Sequence, found: Many[int], *, displaces: bool = True) -> list[Sequence] | None:
        """Who must go so that this one can begin, `found` being its blocks in the pool: the last ones first, and no
        more than needed; nobody unless it `displaces`. None: there is no room, whoever went.
        """
        need = blocks_for(len(sequence.tokens)) - sum([self._pool.uses(block) > 0 for block in found])
        beside, free = len(self._running) + self._begun, self._free
        gone = 0
        while not self._enough(sequence, need, beside, free):
            last = self._running[-1 - gone] if gone < len(self._running) else None
            if not displaces or last is None or last.level >= sequence.request.priority:
                return None
            gone += 1
            beside -= 1
            free += self._freed(last, found)
        leaving = self._running[len(self._running) - gone :]
        del self._running[len(self._running) - gone :]
        self._begun += 1
        self._free = free - need
        return leaving

    def _enough(self, sequence: Sequence, need: int, beside: int, free: int) -> bool:
        if beside >= self._most:
            return False
        return not beside or free >= need + (beside + 1) * (self._headroom + sequence.preempted)

    def _freed(self, sequence: Sequence, found: Many[int]) -> int:
        """Blocks that nobody else has, and those that it would still have taken."""
        own = [block for block in sequence.blocks if self._pool.uses(block) == 1 and block not in found]
        return len(own) + holdings.committed([sequence])
