"""A pod's service with a real program and real engine threads, without ports: what tests of serving ask."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from headway_api.podconfig import BucketCost, ColdConfig
from headway_runtime.batching.costs import CostModel
from headway_runtime.batching.engine import Deliver, Engine, Outcome, RunRecord
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits, Priority
from headway_runtime.buckets import Buckets, resolve_buckets
from headway_runtime.errors import RequestError
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.program import Program
from headway_runtime.serving.intake import Intake
from headway_runtime.serving.service import Service
from headway_runtime.serving.values import Call, Given, Reply

COLD = ColdConfig.model_validate(
    {
        "model": "encoder",
        "namespace": "test",
        "revision": "0a1b2c3d",
        "artifact": {"uri": "file:///m.pt2"},
        "device": {"kind": "cpu"},
    }
)
Result = Reply | RequestError | None


@dataclass
class Desk:
    """`runs` are all runs of the program so far; `results` what was answered, by the number of the request."""

    pod: Pod
    service: Service
    engine: Engine
    runs: list[RunRecord] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    sent: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def send(
        self,
        inputs: dict[str, torch.Tensor],
        *,
        patience: float = 60.0,
        gone: Callable[[], bool] = lambda: False,
        priority: Priority = Priority.NORMAL,
    ) -> int:
        """Call the service; a refusal counts as the answer. Returns the request's number."""
        number = self.sent
        self.sent += 1

        def done(result: Result) -> None:
            assert number not in self.results, "answered twice"
            self.results[number] = result
            self.answered.set()

        try:
            self.service.call(Given(inputs), Call(time.monotonic() + patience, gone, done, priority))
        except RequestError as error:
            assert number not in self.results, "refused after an answer"
            self.results[number] = error
        return number

    async def all(self, but: int = 0) -> dict[int, Result]:
        """Wait for the answers to everything that was sent, but for so many."""
        async with asyncio.timeout(60):
            while len(self.results) < self.sent - but:
                self.answered.clear()
                await self.answered.wait()
        return self.results


def model(
    program: Program,
    deliver: Deliver,
    *,
    instances: int = 1,
    cost: float | None = None,
    inline: bool = False,
    ceilings: dict[str, int | None] | None = None,
    tables: dict[str, int] | None = None,
    **changes: Any,
) -> Model:
    """The program as a pod has it; `changes` are of its layout and of its buckets' sizes (`batch`, …). `cost`: seconds
    that every bucket is said to take; `ceilings`: what runs alone beyond the largest buckets; `tables`: rows of what
    inputs index.
    """
    sizes = {name: changes.pop(name) for name in list(changes) if name in program.dimensions}
    buckets: Buckets = replace(resolve_buckets(program, sizes or None), ceilings=ceilings)
    layout = replace(Layout.of(program), **changes)
    engine = Engine(program, layout, Limits(1, 0.0, 1, 1), deliver, instances=instances, inline=inline)
    costs = [] if cost is None else [BucketCost(sizes=dict(sizes), seconds=cost) for sizes in buckets.combinations]
    found = CostModel.of(costs, layout.batch, layout.padded)
    return Model(engine, layout, Intake(program, layout, buckets, tables), buckets, found)


@asynccontextmanager
async def desk(program: Program, knobs: str = "{}", *, started: bool = True, **changes: Any) -> AsyncIterator[Desk]:
    """Serve a program; `started` False leaves the engine's threads asleep until `start`."""
    torch.set_num_threads(1)
    loop, me = asyncio.get_running_loop(), threading.get_ident()
    pod = Pod(COLD, Metrics(), Origin())
    runs: list[RunRecord] = []

    def deliver(outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        if record is not None:
            runs.append(record)
        if threading.get_ident() == me:
            pod.served(outcomes, record)
        else:
            loop.call_soon_threadsafe(pod.served, outcomes, record)

    installed = model(program, deliver, **changes)
    pod.install(installed)
    pod.knobs_changed(knobs, "test")
    assert pod.report().knobs.error is None, pod.report().knobs.error
    thread = threading.Thread(target=installed.engine.run, daemon=True)
    if started:
        thread.start()
    try:
        yield Desk(pod, Service(pod), installed.engine, runs)
    finally:
        installed.engine.stop()
        if started:
            await loop.run_in_executor(None, thread.join, 60)
            assert not thread.is_alive()
