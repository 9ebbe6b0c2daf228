"""A loaded program that is ready to serve, with what surrounds it."""

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson
from headway_api.podconfig import Knobs, PaddingReport

from headway_runtime import knobs
from headway_runtime.batching.costs import CostModel
from headway_runtime.batching.engine import Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.target import Within
from headway_runtime.buckets import Buckets
from headway_runtime.serving.intake import Intake
from headway_runtime.serving.steps.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded program, ready to serve. `cost` is what its runs take, as measured while warming; `padding` what was
    found of each dimension; `pipeline` its steps around the program.
    """

    engine: Engine
    layout: Layout
    intake: Intake
    buckets: Buckets
    cost: CostModel | None = None
    padding: tuple[PaddingReport, ...] = ()
    pipeline: Pipeline | None = None

    @property
    def instances(self) -> int:
        """Threads that run the program."""
        return self.engine.instances

    @property
    def waiting(self) -> int:
        """Rows in line."""
        return self.engine.waiting_rows

    def room(self) -> None:
        """It generates no text."""

    def describe(self) -> dict[str, Any]:
        """The `inputs` and `outputs` of a metadata answer: the program's, or what its steps make of them."""
        return self.intake.describe() if self.pipeline is None else self.pipeline.describe()

    def hash(self) -> str:
        """Equal for models with the same names, datatypes and shapes."""
        return hashlib.sha256(orjson.dumps(self.describe(), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def obey(self, asked: Knobs) -> knobs.Settings:
        """Apply these knobs from the next run on; returns what of them it can honour."""
        settings = knobs.resolve(asked, self.bounds())
        self.run_by(settings, self.cost)
        if self.pipeline is not None:
            self.pipeline.apply(asked, settings)
        return settings

    def run_by(self, settings: knobs.Settings, cost: CostModel | None) -> None:
        """Choose the next runs by these knobs and this cost."""
        target = settings.latency_target
        within = cost if cost is None or target is None else Within(cost, target)
        self.engine.apply(settings.limits, cost=within, non_finite=settings.non_finite)

    def run(self) -> None:
        """The life of its threads: returns after `stop`. Raises what ended one of them."""
        if self.pipeline is None:
            self.engine.run()
        else:
            self.pipeline.run()

    def sweep(self) -> None:
        """Drop what waits in vain, while long runs keep the threads from doing it. On the event loop."""
        if self.engine.waiting_rows:
            self.engine.sweep()
        if self.pipeline is not None:
            self.pipeline.sweep()

    def stop(self) -> None:
        """End its threads after their current runs. On the event loop."""
        self.engine.stop()
        if self.pipeline is not None:
            self.pipeline.stop()

    def stretch(self, _: knobs.Settings) -> float:
        """The largest bucket was warmed."""
        return 1.0

    def busy_for(self) -> float:
        """Seconds that the longest of its current runs has taken so far."""
        return max(self.engine.busy_for(), 0.0 if self.pipeline is None else self.pipeline.busy_for())

    def largest_batch(self) -> int:
        """The largest warmed batch, in rows; 1 when requests run one at a time."""
        return 1 if self.layout.batch is None else self.buckets.largest(self.layout.batch)

    def bounds(self) -> knobs.Bounds:
        """What of the knobs it can honour."""
        sizes = [self.buckets.sizes[name] for name in self.layout.padded]
        return knobs.Bounds(
            self.largest_batch(),
            self.layout.reason,
            self.cost,
            least=tuple(known[0] for known in sizes),
            most=tuple(known[-1] for known in sizes),
        )
