"""What `latencyTarget` makes of the measured costs: runs that take longer than it are as good as forbidden.

How many rows fit depends on their sizes, so the bound is on every run and not only on a number of rows: the policy
chooses companions by cost, and a run beyond the target costs so much that none is chosen. One row alone always runs.
(The idea is Clipper's, NSDI 2017, section 4.3; there the number of rows was found by trial.)
"""

from dataclasses import dataclass

from headway_runtime.batching.policy import Cost

DEARER = 1000.0


@dataclass(frozen=True, slots=True)
class Within:
    """A cost (seconds) that rises steeply beyond `target` seconds."""

    cost: Cost
    target: float

    def __call__(self, rows: int, sizes: tuple[int, ...]) -> float:
        """Seconds of a run of `rows` rows at these padded sizes."""
        seconds = self.cost(rows, sizes)
        return seconds if rows <= 1 or seconds <= self.target else seconds * DEARER
