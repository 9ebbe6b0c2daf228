"""Does the library answer as the register machine does? Tried before a package is written."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.errors import first_line
from headway_runtime.native.errors import CompileError
from headway_runtime.native.sizes import Sizes
from headway_runtime.program import Program
from headway_runtime.program.datatypes import BY_PROTOCOL, TORCH


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Answers agree within ``atol + rtol * |the machine's|``; integers and booleans must be equal."""

    rtol: float = 1e-3
    atol: float = 1e-5


@dataclass(frozen=True, slots=True)
class Trials:
    """``largest``: greatest absolute difference; ``skipped``: sizes at which the machine itself has no answer."""

    count: int
    largest: float
    skipped: tuple[str, ...]


def compare(
    machine: Program,
    native: Program,
    *,
    sizes: Iterable[Sizes],
    samples: Sequence[Mapping[str, Any]],
    tolerance: Tolerance,
) -> Trials:
    """Run both at all sizes and on all samples. Raises CompileError, naming sizes and output, when they differ or
    when nothing could be compared.
    """
    count, largest, skipped = 0, 0.0, []
    generator = torch.Generator().manual_seed(0)
    for number, sample in enumerate(samples):
        inputs = [_decode(item) for item in sample["inputs"]]
        largest = max(largest, _difference(machine, native, inputs, machine.run(inputs), f"sample {number}", tolerance))
        count += 1
    for choice in sizes:
        where = ", ".join(f"{name} = {size}" for name, size in choice.items()) or "its fixed sizes"
        found = _answerable(machine, choice, generator)
        if found is None:
            skipped.append(where)
            continue
        largest = max(largest, _difference(machine, native, *found, where, tolerance))
        count += 1
    if count == 0:
        message = "the program fails on all inputs that could be made up"
        raise CompileError(f"{message}; record golden samples in the artifact, to compare on those")
    return Trials(count, largest, tuple(skipped))


def _answerable(
    machine: Program, sizes: Sizes, generator: torch.Generator
) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]] | None:
    """Inputs of these sizes that the machine takes, and its answers. Integers are 0 and 1, else 0: an index that every
    table has.
    """
    shapes = machine.input_shapes(sizes)
    for top in (2, 1):
        inputs = [
            _random(BY_PROTOCOL[spec.datatype], shape, top, generator)
            for spec, shape in zip(machine.inputs, shapes, strict=True)
        ]
        try:
            return inputs, machine.run(inputs)
        except Exception:  # noqa: S112  # whatever an operator raises: these inputs are none of the program's
            continue
    return None


def _random(dtype: torch.dtype, shape: tuple[int, ...], top: int, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, top, shape, generator=generator).to(dtype)


def _decode(item: Mapping[str, Any]) -> torch.Tensor:
    """A tensor of a golden sample."""
    raw = bytearray(base64.b64decode(item["data"]))
    flat = torch.frombuffer(raw, dtype=TORCH[item["dtype"]]) if raw else torch.empty(0, dtype=TORCH[item["dtype"]])
    return flat.reshape(item["shape"])


def _difference(
    machine: Program,
    native: Program,
    inputs: list[torch.Tensor],
    expected: tuple[torch.Tensor, ...],
    where: str,
    tolerance: Tolerance,
) -> float:
    try:
        answers = native.run(inputs)
    except Exception as error:
        first = first_line(error, 300)
        raise CompileError(f"the native code fails at {where}, and the program does not: {first}") from error
    largest = 0.0
    for spec, answer, wanted in zip(machine.outputs, answers, expected, strict=True):
        if answer.shape != wanted.shape:
            shapes = f"{list(answer.shape)} instead of {list(wanted.shape)}"
            raise CompileError(f"the native code answers {spec.name} with shape {shapes} at {where}")
        exact = not wanted.is_floating_point() and not wanted.is_complex()
        rtol, atol = (0.0, 0.0) if exact else (tolerance.rtol, tolerance.atol)
        if not torch.allclose(answer, wanted, rtol=rtol, atol=atol, equal_nan=True):
            by = float((answer.double() - wanted.double()).abs().nan_to_num(torch.inf).max())
            raise CompileError(
                f"the native code answers otherwise than the program: {spec.name} at {where} differs by {by:.3g}"
            )
        if not exact and wanted.numel():
            largest = max(largest, _top((answer.double() - wanted.double()).abs()))
    return largest


def _top(difference: torch.Tensor) -> float:
    """The greatest finite one."""
    finite = difference[difference.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0
