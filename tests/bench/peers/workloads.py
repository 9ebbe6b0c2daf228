"""The models, questions and right answers of the comparison. Everything is seeded."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from headway_api.types import Precision
from headway_runtime.precision import MOST_ERROR
from torch.export import Dim

from tests.bench.models import Mlp
from tests.bench.peers.client import Exchange, WrongAnswerError
from tests.bench.peers.forms import Form, Question
from tests.e2e import models as minilm_models
from tests.unit.small_models import prepare

TOLERANCE = 2e-4  # absolute; a batch differs from a single row in the last bits only


@dataclass(frozen=True, slots=True)
class Workload:
    """`model`: what a peer loads. `prepared`: the same program as Headway's pod loads it. `batching`: its cold part."""

    name: str
    model: Path
    prepared: Path
    batching: dict[str, object]
    questions: Sequence[Question]
    answers: Sequence[Sequence[float]]

    def exchanges(self, form: Form, precision: Precision = Precision.EXPORTED) -> list[Exchange]:
        """Every question in this form, with its check."""
        pairs = zip(self.questions, self.answers, strict=True)
        return [Exchange(form.request(question), _check(form, answer, precision)) for question, answer in pairs]


def _check(form: Form, right: Sequence[float], precision: Precision) -> Callable[[bytes, bytes], None]:
    """In a lower precision than the peers' an answer is right within that precision's own limit."""
    expected = np.array(right)
    most = MOST_ERROR.get(precision)

    def near(found: npt.NDArray[Any]) -> bool:
        if found.shape != expected.shape:
            return False
        error = found - expected
        if most is None:
            return bool(np.abs(error).max() <= TOLERANCE)
        return bool(np.linalg.norm(error) <= most * np.linalg.norm(expected))

    def check(head: bytes, body: bytes) -> None:
        if not near(np.array(form.decode(head, body))):
            raise WrongAnswerError(f"{form.path} answered {body[:200]!r} where {expected[:4]}... is right")

    return check


def mlp(folder: Path, count: int = 64) -> Workload:
    """128 numbers -> 16. For the peers the module traced and frozen: the cheapest form it has (10 µs for one row, where
    the module itself takes 17 and the exported program's module 60). The numbers have six decimals.
    """
    torch.manual_seed(0)
    module = Mlp().eval()
    x = np.random.default_rng(0).normal(size=(count, 128)).round(6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and the fastest all the same
        torch.jit.save(torch.jit.trace(module, torch.zeros(5, 128)), str(folder / "mlp.pt"))
        batch = Dim("batch", min=1, max=64)
        program = torch.export.export(module, (torch.zeros(2, 128),), dynamic_shapes=({0: batch},))
        torch.export.save(program, folder / "mlp.pt2")
        y = module(torch.from_numpy(x.astype(np.float32))).tolist()
    return Workload(
        name="mlp",
        model=folder / "mlp.pt",
        prepared=prepare(folder / "mlp.pt2", folder / "mlp"),
        batching={"shapeBuckets": {"batch": [1, 2, 4, 8, 16, 32]}},
        questions=[{"x": row} for row in x.tolist()],
        answers=y,
    )


@cache
def lengths(count: int) -> tuple[int, ...]:
    """Tokens of each sentence: log-normal, mean about 30, from 5 to 128 (what short texts of people look like)."""
    drawn = np.random.default_rng(1).lognormal(mean=3.25, sigma=0.7, size=count)
    return tuple(int(n) for n in drawn.round().clip(5, 128))


def minilm(folder: Path, count: int = 128) -> Workload:
    """Sentences of mixed lengths -> their embeddings. The peers load the very same exported program."""
    source = minilm_models.exported(1, print)
    random = np.random.default_rng(2)
    ids = [[101, *random.integers(1000, 20_000, n - 2).tolist(), 102] for n in lengths(count)]
    program = torch.export.load(source).module()
    with torch.inference_mode():
        answers = [program(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.int64))[0].tolist() for row in ids]
    return Workload(
        name="minilm",
        model=source,
        prepared=prepare(source, folder / "minilm"),
        batching={
            "shapeBuckets": {"batch": [1, 2, 4, 8, 16, 32], "sequence": [16, 32, 64, 128]},
            "dimensions": {"sequence": "ids.1"},
        },
        questions=[{"ids": row, "mask": [1] * len(row)} for row in ids],
        answers=answers,
    )
