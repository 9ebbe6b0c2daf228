"""What the runs of a serving pod teach it: the costs they really have, and what the load says of the knobs.

Fed on the event loop, once for each run.
"""

from collections.abc import Sequence

from headway_api.podconfig import Recommendation

from headway_runtime.advice import recommend
from headway_runtime.batching.costs import CostModel, Observed
from headway_runtime.batching.engine import Answer, Outcome, RunRecord
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits
from headway_runtime.batching.target import Within
from headway_runtime.buckets import Buckets
from headway_runtime.recent import Recent

RECOST_SECONDS = 10.0


class Watch:
    """`cost` is what runs take as observed so far; it changes by replacement. `began` is when the pod was ready."""

    def __init__(
        self, layout: Layout, buckets: Buckets, cost: CostModel | None, *, instances: int, began: float
    ) -> None:
        self.cost = cost
        self._layout = layout
        self._batches = (1,) if layout.batch is None else buckets.sizes[layout.batch]
        self._instances = instances
        self._observed = None if cost is None else Observed(cost)
        self._recent = Recent(layout.batch, layout.padded, began=began)
        self._next = began + RECOST_SECONDS

    def ran(self, outcomes: Sequence[Outcome], record: RunRecord, now: float) -> bool:
        """A run ended. Returns whether `cost` is another one now."""
        waits = [outcome.result.waited for outcome in outcomes if isinstance(outcome.result, Answer)]
        self._recent.ran(record, waits, now)
        if self._observed is None or record.retried or not waits:
            return False
        layout = self._layout
        rows = 1 if layout.batch is None else record.sizes[layout.batch]
        seconds = record.seconds
        if layout.skips is not None:
            seconds /= layout.skips.cost(record.real_cells, record.run_cells)  # as if nothing were left out
        self._observed.ran(rows, layout.padded_sizes(record.sizes), seconds)
        if now < self._next:
            return False
        self._next = now + RECOST_SECONDS
        self.cost = self._observed.corrected()
        return True

    def refused(self, now: float) -> None:
        """A request found no room in line, or ran out of time there."""
        self._recent.refused(now)

    def recommendation(self, limits: Limits, target: float | None) -> Recommendation | None:
        """What to set, and why; None when too little was seen. `target` is the latency target (seconds), if there is
        one: no run beyond it is advised.
        """
        cost = self.cost if self.cost is None or target is None else Within(self.cost, target)
        window = self._recent.window(limits=limits, batches=self._batches, instances=self._instances, cost=cost)
        return recommend(window)
