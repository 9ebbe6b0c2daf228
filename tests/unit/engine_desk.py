"""A program loaded as a pod loads it, with its real engine: requests go in, answers come out."""

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from headway_api.podconfig import ColdConfig
from headway_runtime.batching.engine import Answer, Outcome, RunRecord, Work
from headway_runtime.batching.policy import Ticket
from headway_runtime.loading import load_model
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.serving.values import Given

Tensors = tuple[torch.Tensor, ...]


@dataclass
class Desk:
    """Use as a context. The requests of one `ask` are in line together, so that they can share runs."""

    pod: Pod
    answers: "queue.Queue[tuple[int, Any]]" = field(default_factory=queue.Queue)
    runs: list[RunRecord] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @classmethod
    def of(cls, directory: Path, **batching: Any) -> Self:
        torch.set_num_threads(1)
        cold = {"model": "m", "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
        pod = Pod(
            ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}, "batching": batching}), Metrics(), Origin()
        )
        desk = cls(pod)
        pod.install(load_model(pod, directory, desk.deliver, lambda function, *args: function(*args)))
        pod.knobs_changed('{"maxWait": "20ms", "queue": {"timeout": "20s"}}', "test")
        assert pod.settings is not None
        desk.model.engine.apply(pod.settings.limits)  # without measured costs, whatever may share a run does
        return desk

    @property
    def model(self) -> Model:
        assert self.pod.model is not None
        return self.pod.model

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.model.engine.run, daemon=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.model.engine.stop()
        if self.thread.is_alive():
            self.thread.join(10)

    def deliver(self, outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        if record is not None:
            self.runs.append(record)
        for outcome in outcomes:
            self.answers.put((outcome.slot, outcome.result))

    def ask(self, *requests: Mapping[str, torch.Tensor]) -> list[Tensors]:
        """The outputs of each request, in order; all of them are in line before the engine runs. Raises what any of
        them is answered with.
        """
        return asyncio.run(self._ask(requests))  # quick programs run on the event loop, others on the thread

    async def _ask(self, requests: Sequence[Mapping[str, torch.Tensor]]) -> list[Tensors]:
        sent = [self._send(inputs) for inputs in requests]
        if not self.thread.is_alive():
            self.thread.start()
        found: dict[int, Any] = {}
        end = time.monotonic() + 60
        while len(found) < len(sent):
            assert time.monotonic() < end, "not answered"
            await asyncio.sleep(0.001)
            while not self.answers.empty():
                number, result = self.answers.get()
                assert number not in found, "answered twice"
                found[number] = result
        for result in found.values():
            if not isinstance(result, Answer):
                raise result
        return [found[number].outputs for number in sent]

    def _send(self, inputs: Mapping[str, torch.Tensor]) -> int:
        number, now = next(self.numbers), time.monotonic()
        request = self.model.intake.request(Given(inputs))
        ticket = Ticket(number, request.group, request.rows, request.bytes, now, now + 20, request.padded)
        self.model.engine.submit(Work(ticket, request.inputs, request.sizes, number, lambda: False))
        return number
