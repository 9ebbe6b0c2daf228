"""May smaller requests be filled up to the size of larger ones? Tried for each dimension but the batch before the pod
is ready; what was not shown to be harmless is not done.

A row is run alone, and again in the run that the engine would make: beside longer rows, filled up at its end.
(a) Its answers must stay; (b) whatever fills up an input for which the author recorded no value, and which is no mask,
must not matter; (c) nor must NaN, very large numbers and other ids in its companions. What differs by no more than
rounding (``noise``) is the same. These are trials by samples, not proofs; ``cases`` says which.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from headway_api.podconfig import PaddingReport, Verdict
from headway_api.types import Padding

from headway_runtime.batching.layout import Layout
from headway_runtime.errors import first_line
from headway_runtime.logs import log
from headway_runtime.program import Program
from headway_runtime.program.ragged import Skips
from headway_runtime.program.ragged import found as found_skips
from headway_runtime.proof.cases import CannotTryError, Plan, plan
from headway_runtime.proof.fills import Fill, fill_of, mentions, values
from headway_runtime.proof.runs import OutOfTimeError, Runs
from headway_runtime.proof.shares import measured
from headway_runtime.proof.trial import ChangedError, Request, Trial

LONGEST = 10.0
"""Seconds that the trials may take, or as long as the warm-up took."""
SLOWER = 3
"""Times that, where weights as they were exported are tried first: they are slower than those that were warmed."""
MOST = 300.0
"""Seconds that this may come to: no step before a pod is ready takes ten minutes."""

Stage = tuple[Request, Runs]


def prove_padding(asked: Request, padding: Padding, *, warm_seconds: float) -> tuple[Layout, list[PaddingReport]]:
    """The layout with the dimensions along which it may pad, and a report for each dimension of which requests may
    differ.
    """
    began = time.monotonic()
    program, layout = asked.program, asked.layout
    fills = tuple(fill_of(spec, asked.material.padding) for spec in program.inputs)
    seconds = max(LONGEST, warm_seconds)
    if asked.exact is not None:
        seconds = max(seconds, min(SLOWER * seconds, MOST))
    stages = [(each, Runs(each.program, layout, seconds, behind=each.behind)) for each in asked.stages]
    padded: list[str] = []
    reports: list[PaddingReport] = []
    skips: dict[str, Skips | None] = {}
    for name in program.dimensions:
        if name in (layout.batch, program.batch):
            continue
        report = _report(stages, fills, name, padded, padding)
        if report is not None:
            reports.append(report)
            if report.verdict in (Verdict.PROVEN, Verdict.TRUSTED):
                padded.append(name)
                skips[name] = stages[-1][1].skips
    for report in reports:
        level = "info" if report.verdict in (Verdict.PROVEN, Verdict.NEVER) else "warning"
        log("padding_tried", level=level, dimension=report.dimension, verdict=report.verdict, what=report.message)
    left_out = skips[padded[0]] if len(padded) == 1 else None
    if left_out is not None:
        left_out = measured(program, left_out, asked.buckets, asked.material)
    words = None if left_out is None else {"products": len(left_out.nodes), "share": round(left_out.share, 3)}
    log("padding_trials_ended", padded=padded, left_out=words, seconds=round(time.monotonic() - began, 3))
    return replace(layout, padded=tuple(padded), fills=_used(program, fills, padded), skips=left_out), reports


def _report(
    stages: Sequence[Stage], fills: Sequence[Fill], name: str, padded: Sequence[str], padding: Padding
) -> PaddingReport | None:
    """None for a dimension of one size."""
    asked, runs = stages[0]
    stages[-1][1].skips = None
    if padding is Padding.NEVER:
        return PaddingReport(dimension=name, verdict=Verdict.NEVER, message="spec.batching.padding is Never")
    if (why := _impossible(asked, name)) is not None:
        return PaddingReport(dimension=name, verdict=Verdict.UNPROVEN, message=why)
    if padding is Padding.TRUSTED:
        message = f"not tried, as spec.batching.padding is Trusted; {values(asked.program, fills, name)}"
        return PaddingReport(dimension=name, verdict=Verdict.TRUSTED, message=message)
    try:
        found = plan(asked.program, asked.buckets, runs.batch, name)
        if found is None:
            return None
        stages[-1][1].skips = _skips(stages[-1][0], name)
        tried = [_tried(each, its_runs, fills, found, padded) for each, its_runs in stages]
        return PaddingReport(dimension=name, verdict=Verdict.PROVEN, message="; then, as it is kept, ".join(tried))
    except CannotTryError as error:
        return PaddingReport(dimension=name, verdict=Verdict.UNPROVEN, message=str(error))
    except ChangedError as error:
        unknown = _unknown(asked.program, fills, name)
        verdict = Verdict.UNPROVEN if unknown else Verdict.FAILED
        return PaddingReport(dimension=name, verdict=verdict, message=f"{error}; {_advice(unknown)}")
    except OutOfTimeError:
        message = f"the trials did not end within {runs.seconds:.0f} s; spec.batching.padding: Trusted pads without any"
        return PaddingReport(dimension=name, verdict=Verdict.UNPROVEN, message=message)
    except Exception as error:  # of the program, in runs of real sizes only: requests meet it, and the pod serves
        log("padding_trial_failed", level="warning", dimension=name, error=error)
        first = first_line(error, 150)
        message = f"the program fails in a run of the trial: {type(error).__name__}: {first}"
        return PaddingReport(dimension=name, verdict=Verdict.UNPROVEN, message=message)


def _skips(asked: Request, name: str) -> Skips | None:
    """Which products have rows along the dimension that may be left out, if their own trial passes."""
    program, batch = asked.program, asked.layout.batch
    if not program.can_skip or asked.behind is None or batch is None:
        return None
    most = {each: asked.buckets.largest(each) for each in program.dimensions}
    return found_skips(asked.behind, program, batch, name, most)


def _tried(asked: Request, runs: Runs, fills: Sequence[Fill], found: Plan, padded: Sequence[str]) -> str:
    """What was tried, in words: with the samples, or, when they show nothing, with inputs that are made up."""
    first: CannotTryError | None = None
    for source in asked.material.sources():
        try:
            return Trial(replace(asked, material=source), runs, fills, found).run(padded)
        except CannotTryError as error:
            first = first or error
    assert first is not None
    raise first


def _impossible(asked: Request, name: str) -> str | None:
    """Why requests of different sizes could not share a run whatever the program computes."""
    program, layout = asked.program, asked.layout
    if layout.batch is None:
        return f"no two requests share a run: {layout.reason}"
    if asked.buckets.largest(layout.batch) < 2:
        return f"no two requests share a run: the largest batch is {asked.buckets.largest(layout.batch)}"
    symbol = program.dimensions[name].symbol
    for spec, axis in zip(program.inputs, layout.inputs, strict=True):
        if axis is None and mentions(spec, symbol):
            return f"input {spec.name} has no axis of rows, and all requests of a run share it"
    for spec in program.outputs:
        if None in program.declared_shape(spec, asked.buckets.combinations[0]):
            return f"the shape of output {spec.name} depends on the data, so it cannot be cut to a request's size"
    return None


def _unknown(program: Program, fills: Sequence[Fill], name: str) -> list[str]:
    """Inputs along the dimension without a recorded value, when there is no mask that would hide them."""
    symbol = program.dimensions[name].symbol
    along = [(spec, fill) for spec, fill in zip(program.inputs, fills, strict=True) if mentions(spec, symbol)]
    if any(fill.mask for _, fill in along):
        return []
    return [spec.name for spec, fill in along if not fill.recorded]


def _advice(unknown: Sequence[str]) -> str:
    if unknown:
        options = " ".join(f"--pad {name}=VALUE" for name in unknown)
        return f"if there is a value that the model ignores, record it: headway export {options}"
    return "such a model needs a mask that it heeds: docs/padding.md"


def _used(program: Program, fills: Sequence[Fill], padded: Sequence[str]) -> tuple[int | float | bool | None, ...]:
    """Pad value of each input that a padded dimension reaches."""
    symbols = [program.dimensions[name].symbol for name in padded]
    return tuple(
        fill.value if any(mentions(spec, symbol) for symbol in symbols) else None
        for spec, fill in zip(program.inputs, fills, strict=True)
    )
