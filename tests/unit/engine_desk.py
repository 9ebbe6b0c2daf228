"""A program loaded as a pod loads it, with its real engine: requests go in, answers come out."""

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
from headway_runtime.loading import load
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.serving.values import Given

Tensors = tuple[torch.Tensor, ...]


@dataclass
class Desk:
    """Use as a context: the engine starts when the first answers are asked for, so that what was sent before can share
    runs.
    """

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
        pod.install(load(pod, directory, desk.deliver, lambda function, *args: function(*args)))
        pod.knobs_changed('{"maxWait": "20ms", "queue": {"timeout": "20s"}}', "test")
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
        """The outputs of each request, in order; all of them are in line before the engine starts. Raises what any of
        them is answered with.
        """
        sent = []
        for inputs in requests:
            number = next(self.numbers)
            request = self.model.intake.request(Given(inputs))
            layout, now = self.model.layout, time.monotonic()
            group = None if request.alone else layout.group_key(request.sizes, request.inputs)
            sizes = layout.padded_sizes(request.sizes)
            ticket = Ticket(number, group, request.rows, request.bytes, now, now + 20, sizes)
            self.model.engine.submit(Work(ticket, request.inputs, request.sizes, number, lambda: False))
            sent.append(number)
        if not self.thread.is_alive():
            self.thread.start()
        found: dict[int, Any] = {}
        while len(found) < len(sent):
            number, result = self.answers.get(timeout=20)
            found[number] = result
        for result in found.values():
            if not isinstance(result, Answer):
                raise result
        return [found[number].outputs for number in sent]
