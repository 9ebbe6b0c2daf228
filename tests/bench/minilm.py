"""MiniLM with sentences of mixed lengths, as several benchmarks measure it: the program, the requests, a pod of it."""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from headway_api.types import Precision
from headway_runtime.bench.connection import Address
from headway_runtime.bench.encode import http_requests
from headway_runtime.bench.inputs import Request
from headway_runtime.bench.model import ModelInfo, TensorInfo
from headway_runtime.bench.sizes import Distribution
from headway_runtime.program import Program, load_program

from tests.e2e.models import exported
from tests.unit.pod_process import MODEL, PodProcess, pod
from tests.unit.small_models import prepare

WORDS = 30_522
LENGTHS = Distribution(8, 128, 30)  # tokens: mostly short, with a tail
BUCKETS = {"batch": [1, 2, 4, 8, 16], "sequence": [16, 32, 64, 128]}
INFO = ModelInfo(
    MODEL,
    "",
    (TensorInfo("ids", "INT64", ("batch", "sequence")), TensorInfo("mask", "INT64", ("batch", "sequence"))),
    "batch",
)


def sentences(count: int, seed: int = 5) -> list[Request]:
    """Requests of one sentence each: random words between the tokenizer's marks, all of the mask set."""
    random_, generator = random.Random(seed), np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length = LENGTHS.draw(random_)
        ids = generator.integers(1000, WORDS, size=(1, length), dtype=np.int64)
        ids[0, 0], ids[0, -1] = 101, 102
        sizes = {"batch": 1, "sequence": length}
        made.append(Request({"ids": ids, "mask": np.ones_like(ids)}, sizes))
    return made


def wire(requests: Sequence[Request], address: Address, *, binary: bool = False, host: str = "") -> list[bytes]:
    """The same as HTTP requests."""
    return http_requests(INFO, requests, host=host or str(address), binary=binary)


def tensors(requests: Sequence[Request]) -> list[torch.Tensor]:
    """`ids` and `mask` of all, filled up to the longest: [requests, longest]."""
    longest = max(request.sizes["sequence"] for request in requests)
    ids, mask = np.zeros((2, len(requests), longest), dtype=np.int64)
    for row, request in enumerate(requests):
        ids[row, : request.sizes["sequence"]] = request.arrays["ids"]
        mask[row, : request.sizes["sequence"]] = 1
    return [torch.from_numpy(ids), torch.from_numpy(mask)]


def program(model: Path, precision: Precision = Precision.EXPORTED) -> Program:
    """A prepared program, in this process."""
    return load_program(model, dimension_names={}, device="cpu", program=None, precision=precision)


def prepared(folder: Path) -> Path:
    """MiniLM in `folder`/model, prepared unless it is there."""
    model = folder / "model"
    return model if model.exists() else prepare(exported(1, print), model)


@contextmanager
def minilm_pod(
    folder: Path,
    processors: set[int],
    knobs: dict[str, Any],
    *,
    model: Path | None = None,
    precision: Precision = Precision.EXPORTED,
    **batching: Any,
) -> Iterator[PodProcess]:
    """A pod of MiniLM in `folder`, on these processors and no others, ready. `model`: the prepared program; None: it
    is beside it.
    """
    model = model or prepared(folder)
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)  # a child inherits it, and counts its processors by it
    try:
        cold = {"batching": {"shapeBuckets": BUCKETS, **batching}, "precision": precision.value}
        with pod(folder, model, **cold) as server:
            os.sched_setaffinity(0, mine)
            server.wait_for_phase(seconds=300)
            server.apply_knobs(knobs)
            yield server
    finally:
        os.sched_setaffinity(0, mine)


def split_processors(count: int = 1) -> tuple[set[int], set[int]]:
    """`count` processors for the pod, and one for the client; it shares the pod's where there are no more."""
    mine = sorted(os.sched_getaffinity(0))
    return set(mine[:count]), set(mine[count : count + 1]) or set(mine)
