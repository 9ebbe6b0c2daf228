"""Does a program whose weights are kept in a lower precision (`spec.precision`) still answer closely enough? Asked
before the pod is ready, in the place of the golden samples' tolerance, which is one of rounding.

It is held against the artifact's golden answers; without any, against what the same program with its weights as
exported answers to the artifact's example inputs.

An output of real numbers is judged by the size of its error by its own size (root mean squares). A sample whose answer
is smaller than usual (a logit near zero) is judged by the usual size, that of the median sample; so neither a small
answer nor a single large one decides for all. Whole numbers must be the same in a share of all places.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from headway_api.podconfig import ParityReport
from headway_api.types import Precision

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets
from headway_runtime.errors import FatalError, first_line
from headway_runtime.logs import log
from headway_runtime.memory import out_of_memory
from headway_runtime.parity import Sample, Tensors, alone, refused
from headway_runtime.precision import LEAST_EQUAL, MOST_ERROR, cannot, not_borne
from headway_runtime.precision import refused as refusal
from headway_runtime.program import Program
from headway_runtime.warmup import refusal as failure

NOTHING_TO_TRY = (
    "the artifact carries neither golden samples nor example inputs that this pod admits and answers with numbers, so "
    "that nothing shows what its answers become: export it with headway export --sample, or write precision: Exported"
)


@dataclass(slots=True)
class Judged:
    """What came of one output: of each sample the size of the answer and of its error; and places that are equal."""

    name: str
    sizes: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    largest: float = 0.0
    places: int = 0
    equal: int = 0

    def hear(self, here: torch.Tensor, there: torch.Tensor) -> None:
        """One sample's answer, and what it should be: of one shape and type."""
        if here.shape != there.shape or here.dtype != there.dtype:
            self.sizes.append(0.0)
            self.errors.append(float("inf"))
        elif not there.numel():
            return
        elif there.is_floating_point() or there.is_complex():
            size, error, largest = _sizes(here, there)
            self.sizes.append(size)
            self.errors.append(error)
            self.largest = max(self.largest, largest)
        else:
            self.places += there.numel()
            self.equal += int((here == there).sum())

    @property
    def error(self) -> float:
        """The largest of a sample, of its answer's size or the usual one; 0 where nothing differs."""
        usual = statistics.median(self.sizes) if self.sizes else 0.0
        pairs = zip(self.errors, self.sizes, strict=True)
        return max((_ratio(error, max(size, usual)) for error, size in pairs), default=0.0)

    @property
    def share(self) -> float:
        """Of the places that are equal."""
        return self.equal / self.places if self.places else 1.0

    def words(self, precision: Precision) -> str:
        """What was found, and what is asked for."""
        if self.places:
            asked = f"at least {LEAST_EQUAL[precision]:.0%} are asked for"
            return f"output {self.name} is equal in {self.equal} of {self.places} places ({self.share:.1%}; {asked})"
        most = MOST_ERROR[precision]
        return f"output {self.name} is off by {self.error:.2g} of its size (at most {most:g} is allowed)"

    def is_close(self, precision: Precision) -> bool:
        """Whether it is near enough. (What is not a number is near nothing.)"""
        return self.error <= MOST_ERROR[precision] and self.share >= LEAST_EQUAL[precision]


def verify(
    program: Program,
    layout: Layout,
    buckets: Buckets,
    samples: Sequence[Sample],
    precision: Precision,
    *,
    exact: Program,
) -> ParityReport:
    """`samples`: all of the artifact, those without answers (example inputs), too. `exact`: the program with weights as
    they were exported.

    Raises FatalError: `PrecisionRefused`; `ParityFailed` when the program fails on a sample.
    """
    tried, kind = _tried(program, layout, buckets, samples, exact)
    judged = [Judged(spec.name) for spec in program.outputs]
    for number, (sample, answers) in enumerate(tried):
        for each, here, there in zip(judged, _answers(program, layout, sample, number), answers, strict=True):
            each.hear(here, there)
    if not any(each.sizes or each.places for each in judged):  # no sample, or answers without a number
        raise refusal(cannot(precision, NOTHING_TO_TRY))
    worst = sorted(judged, key=lambda each: (each.is_close(precision), -each.error, each.share))
    counted = f"{len(tried)} {kind}{'s' if len(tried) > 1 else ''}"
    words = f"{precision.value}, {counted}: " + "; ".join(each.words(precision) for each in worst[:3])
    log(
        "precision_checked",
        precision=precision.value,
        samples=len(tried),
        of=kind,
        errors={each.name: each.error for each in judged if not each.places},
        equal={each.name: each.share for each in judged if each.places},
    )
    if not worst[0].is_close(precision):
        raise not_borne(words, "program")
    largest = max(each.largest for each in judged)
    return ParityReport(samples=len(tried), agrees=True, largest_difference=largest, message=words)


def _tried(
    program: Program,
    layout: Layout,
    buckets: Buckets,
    samples: Sequence[Sample],
    exact: Program,
) -> tuple[list[tuple[Sample, Tensors]], str]:
    """Samples with what their answers should be, and what kind they are of."""
    admitted = []
    for number, sample in enumerate(samples):
        why = refused(program, layout, sample, buckets)
        if why is None:
            admitted.append(sample)
        else:
            log("sample_skipped", level="warning", why=f"sample {number} is not run: {why}")
    if golden := [(sample, sample.outputs) for sample in admitted if sample.outputs]:
        return golden, "golden sample"
    if not admitted:
        return [], ""
    answers = [_answers(exact, layout, sample, number) for number, sample in enumerate(admitted)]
    return list(zip(admitted, answers, strict=True)), "example input"


def _answers(program: Program, layout: Layout, sample: Sample, number: int) -> Tensors:
    try:
        return alone(program, layout, sample)
    except Exception as error:
        if out_of_memory(error):
            raise failure(error, "OutOfMemory", f"running sample {number}") from error
        why = f"sample {number}: the program failed: {type(error).__name__}: {first_line(error, 300)}"
        raise FatalError("ParityFailed", why, condition="Ready", field="spec.verification") from error


def _sizes(here: torch.Tensor, there: torch.Tensor) -> tuple[float, float, float]:
    """Root mean squares of an answer and of its error, and the largest finite error. What is the same in both and far
    beyond all else (-1e30 for what is never chosen, infinity, NaN) says nothing of the size.
    """
    wide = torch.complex128 if there.is_complex() else torch.float64
    here, there = here.to(wide), there.to(wide)
    same = (here == there) | (here.isnan() & there.isnan())
    error = torch.where(same, 0.0, (here - there).abs()).nan_to_num(nan=float("inf"), posinf=float("inf"))
    size = there.abs()
    tame = size.isfinite() & ~(same & (size > 1000 * _usual(size)))
    counted = size[tame]
    finite = error[error.isfinite()]
    return (
        _root_mean_square(counted) if counted.numel() else 0.0,
        _root_mean_square(error),
        float(finite.max()) if finite.numel() else float("inf"),
    )


def _usual(size: torch.Tensor) -> float:
    finite = size[size.isfinite()]
    return float(finite.median()) if finite.numel() else 0.0


def _root_mean_square(numbers: torch.Tensor) -> float:
    return float(numbers.square().mean().sqrt())


def _ratio(error: float, size: float) -> float:
    if not error:
        return 0.0
    return error / size if size and math.isfinite(error) else float("inf")
