"""May a size be 1 where export says 2 or more? It writes 2 by itself for every size that it made dynamic (`Dim.AUTO`),
because it takes 0 and 1 for constants; most programs are as good at 1, and requests of one row are the most usual.

Where the guards hold, shapes are derived at 1 (`ones_by_shape`, before anything runs), and the program is run once at 1
(`ones_by_answer`): it must not fail, its outputs must have the shapes that they are declared to have, and one row must
be answered as in a batch of two. Else the size starts at 2 after all.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import FIELD, Buckets, Sizes
from headway_runtime.errors import FatalError, first_line
from headway_runtime.logs import log
from headway_runtime.program import Program, ProgramError
from headway_runtime.program.shape_gate import ShapeGate
from headway_runtime.proof.noise import apart
from headway_runtime.proof.runs import Row, Runs
from headway_runtime.proof.samples import Material, realistic
from headway_runtime.warmup import simplest

AUTO = 2
Asked = Mapping[str, Sequence[int]]
"""`spec.batching.shapeBuckets`."""


def ones_by_shape(program: Program, document: Mapping[str, Any], buckets: Buckets, *, asked: Asked) -> Buckets:
    """Let the program take sizes of 1 only where its shapes come out as declared; the buckets without those where they
    do not. Raises FatalError `BucketOutOfRange` for one that was asked for.
    """

    def refused(name: str, sizes: Sizes) -> str | None:
        gate = ShapeGate(document, program)
        try:
            gate.measure({**sizes, name: program.size_of(name, AUTO)})
        except ProgramError:
            return None  # it is not for the 1
        try:
            gate.measure(sizes)
        except ProgramError as error:
            return error.message
        return None

    return _kept(program, document, buckets, asked, refused)


def ones_by_answer(
    program: Program, document: Mapping[str, Any], buckets: Buckets, material: Material, *, asked: Asked
) -> Buckets:
    """The same by running it."""
    return _kept(program, document, buckets, asked, lambda name, sizes: _refused(program, name, sizes, material))


def _kept(
    program: Program,
    document: Mapping[str, Any],
    buckets: Buckets,
    asked: Asked,
    refused: Callable[[str, Sizes], str | None],
) -> Buckets:
    """``refused``: why the program is another at these sizes, of which the named one is 1."""
    for name, dimension in dict(program.dimensions).items():
        if document["symbols"][dimension.symbol]["min"] != AUTO or dimension.min >= program.size_of(name, AUTO):
            continue
        one = program.size_of(name, 1)
        sizes = _beside(program, buckets, name, one)
        if sizes is None or (why := refused(name, sizes)) is None:
            continue
        log("size_of_one_refused", level="warning", dimension=name, size=one, why=why)
        program.start_at(name, AUTO)
        if one in asked.get(name, ()):
            field = f"{FIELD}.{name}"
            message = f"{field}: {one} is outside the program's range, {program.range(name)}: {why}"
            raise FatalError("BucketOutOfRange", message, condition="Accepted", field=field)
        buckets = buckets.without(name, one)
    return buckets


def _beside(program: Program, buckets: Buckets, name: str, one: int) -> dict[str, int] | None:
    """The smallest warmed sizes of the other dimensions with which this one may be 1; None where it never may."""
    for sizes in reversed(buckets.combinations):
        if program.check({**sizes, name: one}) is None:
            return {**sizes, name: one}
    return None


def _refused(program: Program, name: str, sizes: Sizes, material: Material) -> str | None:
    """Why the program does not take these sizes, in words."""
    try:
        outputs = _run(program, sizes, material)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error, 200)}"
    for spec, output in zip(program.outputs, outputs, strict=True):
        declared = program.declared_shape(spec, sizes)
        if any(n is not None and n != size for n, size in zip(declared, output.shape, strict=True)):
            return f"output {spec.name} has the shape {list(output.shape)}, declared as {program.describe(spec)}"
    layout = Layout.of(program)
    two = {**sizes, name: program.size_of(name, AUTO)}
    if name != layout.batch or program.check(two) is not None:
        return None
    return _other_than_of_two(Runs(program, layout, inf), sizes, material)


def _run(program: Program, sizes: Sizes, material: Material) -> tuple[Any, ...]:
    try:
        return program.run(realistic(material, sizes))
    except Exception:
        return program.run(simplest(program, sizes))


def _other_than_of_two(runs: Runs, sizes: Sizes, material: Material) -> str | None:
    """How a row's answer differs from its answer in a batch of two."""
    for number in range(2):
        row = Row(material.row({**sizes, runs.batch: 1}, number), sizes)
        alone, among = runs.together([row], sizes, None, fewest=1)[0], runs.together([row, row], sizes, None)[0]
        for spec, one, other in zip(runs.program.outputs, alone, among, strict=True):
            if apart(one, other):
                return f"output {spec.name} of a row is another one in a batch of two"
    return None
