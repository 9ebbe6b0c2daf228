"""Inputs in one line, as the command line takes them, and tensors that fit them.

    ids=int64[batch:1..64,sequence:8..256/8]        image=float32[batch,3,224,224]

An axis is a number (fixed), or a name with a range: least and largest size (``1..`` is unbounded; without a range: 1 or
more), and a step of which the size is a multiple. A name has one range, said once.
"""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from headway_runtime.export.errors import ExportError
from headway_runtime.export.sizes import Size
from headway_runtime.program.datatypes import PROTOCOL, TORCH

FORM = "NAME=TYPE[AXIS,…], as in ids=int64[batch:1..64,sequence:1..256] or image=float32[batch,3,224,224]"
MOST_BYTES = 1 << 20  # of one generated sample's inputs, so that a few fit the record with their answers

_INPUT = re.compile(r"(?P<name>[^=\s]+)=(?P<type>\w+)\[(?P<axes>[^\[\]]*)\]\Z")
_AXIS = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)(:(?P<min>\d+)\.\.(?P<max>\d+)?(/(?P<step>\d+))?)?\Z")
_RANGE = re.compile(r"(?P<name>[^=\s]+)=(?P<low>-?[\d.e+-]+?)\.\.(?P<high>-?[\d.e+-]+)\Z")
_LARGEST_BATCH, _LARGEST_SIZE = 8, 64

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: its element type by torch's name, and its axes, fixed or dynamic."""

    name: str
    dtype: str
    axes: tuple[int | Size, ...]

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape at these sizes of the dimensions."""
        return tuple(axis if isinstance(axis, int) else sizes[axis.name] for axis in self.axes)


def parse_inputs(texts: Sequence[str]) -> list[InputSpec]:
    """The inputs, each size with its range wherever that was said. Raises ExportError."""
    specs: list[InputSpec] = []
    ranges: dict[str, Size] = {}
    for text in texts:
        match = _INPUT.match(text.strip())
        if match is None:
            raise ExportError(f"--input {text!r}: write {FORM}")
        if match["type"] not in PROTOCOL:
            raise ExportError(
                f"--input {text!r}: {match['type']} is no element type; the types are {', '.join(PROTOCOL)}"
            )
        axes = [_axis(part.strip(), text, ranges) for part in match["axes"].split(",") if part.strip()]
        specs.append(InputSpec(match["name"], match["type"], tuple(axes)))
    if twice := {s.name for s in specs if [t.name for t in specs].count(s.name) > 1}:
        raise ExportError(f"--input: {min(twice)} is described twice")
    return [replace(s, axes=tuple(a if isinstance(a, int) else ranges.get(a.name, a) for a in s.axes)) for s in specs]


def _axis(text: str, whole: str, ranges: dict[str, Size]) -> int | Size:
    if text.isdigit():
        return int(text)
    match = _AXIS.match(text)
    if match is None:
        raise ExportError(
            f"--input {whole!r}: {text!r} is no axis; write a number, or a name with a range as in batch:1..64"
        )
    if match["min"] is None:
        return Size(match["name"])
    size = Size(match["name"], int(match["min"]), int(match["max"]) if match["max"] else None, int(match["step"] or 1))
    if ranges.setdefault(size.name, size) != size:
        raise ExportError(f"--input {whole!r}: {size} and {ranges[size.name]}: one name has one range")
    return size


def parse_ranges(texts: Sequence[str], names: Sequence[str]) -> dict[str, Range]:
    """``ids=0..30521``: the values that generated inputs have. Raises ExportError."""
    found: dict[str, Range] = {}
    for text in texts:
        match = _RANGE.match(text.strip())
        try:
            low, high = (float(match["low"]), float(match["high"])) if match else (1.0, 0.0)
        except ValueError:
            low, high = 1.0, 0.0
        if match is None or low > high or not math.isfinite(high - low):
            raise ExportError(f"--range {text!r}: write NAME=LOW..HIGH, as in ids=0..30521")
        if match["name"] not in names:
            raise ExportError(
                f"--range {text!r}: there is no input {match['name']!r}; the inputs are {', '.join(names)}"
            )
        found[match["name"]] = (low, high)
    return found


def dimensions(specs: Sequence[InputSpec]) -> dict[str, Size]:
    """The dynamic sizes by name, in order."""
    return {axis.name: axis for spec in specs for axis in spec.axes if isinstance(axis, Size)}


def tracing_sizes(sizes: Mapping[str, Size]) -> dict[str, int]:
    """Sizes to trace with: 2 or more, small, and different from each other where that is possible."""
    chosen: dict[str, int] = {}
    for number, size in enumerate(sizes.values()):
        first = -(-size.least_traced // size.step)  # in steps
        steps = (3 + 2 * number, *range(first, first + 64))
        fitting = [n for k in steps if size.holds(n := k * size.step) and n >= size.least_traced]
        if not fitting:
            raise ExportError(f"{size} holds no size of {size.least_traced} or more; write a fixed number instead")
        chosen[size.name] = next((n for n in fitting if n not in chosen.values()), fitting[0])
    return chosen


def samples(
    specs: Sequence[InputSpec], count: int, ranges: Mapping[str, Range], random: torch.Generator
) -> list[dict[str, torch.Tensor]]:
    """``count`` samples: of the least sizes first, then of moderate ones within the ranges."""
    sizes = _sample_sizes(specs, count, random) if count else []
    return [make(specs, each, ranges, random) for each in sizes]


def hint(module: torch.nn.Module) -> str:
    """What to write for a module's arguments, by the names of its ``forward``."""
    names = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return " ".join(f"--input '{name}=TYPE[batch:1..64,…]'" for name in names)


def _sample_sizes(specs: Sequence[InputSpec], count: int, random: torch.Generator) -> list[dict[str, int]]:
    sizes = dimensions(specs)
    batch = next((axis.name for spec in specs for axis in spec.axes[:1] if isinstance(axis, Size)), None)
    found = [{name: _multiple(size, max(1, size.min)) for name, size in sizes.items()}]
    while len(found) < count:
        most = {name: _LARGEST_BATCH if name == batch else _LARGEST_SIZE for name in sizes}
        drawn = {name: _draw(size, most[name], random) for name, size in sizes.items()}
        found.append(drawn if _bytes(specs, drawn) <= MOST_BYTES else found[0])
    return found


def make(
    specs: Sequence[InputSpec], sizes: Mapping[str, int], ranges: Mapping[str, Range], random: torch.Generator
) -> dict[str, torch.Tensor]:
    """Inputs of these sizes: whole numbers in their range (without one: 0 and 1), floating-point ones normal, or even
    within their range.
    """
    return {spec.name: _values(TORCH[spec.dtype], spec.shape(sizes), ranges.get(spec.name), random) for spec in specs}


def read(path: Path, specs: Sequence[InputSpec]) -> dict[str, torch.Tensor]:
    """One sample of an ``.npz`` file with an array for each input. Raises ExportError."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}
    except (OSError, ValueError, TypeError) as error:
        raise ExportError(f"{path} is no readable .npz file of plain arrays: {error}") from None
    names = [spec.name for spec in specs]
    if sorted(found) != sorted(names):
        raise ExportError(f"{path} has the arrays {sorted(found)}; the inputs are {', '.join(names)}")
    for spec in specs:
        tensor = found[spec.name]
        if tensor.dtype != TORCH[spec.dtype] and spec.dtype == "bfloat16":
            found[spec.name] = tensor.to(torch.bfloat16)  # NumPy has no such type
        elif tensor.dtype != TORCH[spec.dtype]:
            raise ExportError(
                f"{path}: {spec.name} is {str(tensor.dtype).removeprefix('torch.')}, and the input is {spec.dtype}"
            )
        if tensor.dim() != len(spec.axes):
            raise ExportError(f"{path}: {spec.name} has {tensor.dim()} axes, and the input has {len(spec.axes)}")
    return found


def _values(dtype: torch.dtype, shape: tuple[int, ...], range_: Range | None, random: torch.Generator) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=random).to(dtype)
    if not dtype.is_floating_point:
        low, high = range_ or (0, 1)
        return torch.randint(int(low), int(high) + 1, shape, generator=random).to(dtype)
    if range_ is None:
        return torch.randn(shape, generator=random).to(dtype)
    return (range_[0] + (range_[1] - range_[0]) * torch.rand(shape, generator=random)).to(dtype)


def _draw(size: Size, most: int, random: torch.Generator) -> int:
    low = max(1, size.min)
    high = max(low, most if size.max is None else min(size.max, most))
    return _multiple(size, int(torch.randint(low, high + 1, (), generator=random)))


def _multiple(size: Size, value: int) -> int:
    up = -(-value // size.step) * size.step
    return up if size.holds(up) else up - size.step


def _bytes(specs: Sequence[InputSpec], sizes: Mapping[str, int]) -> int:
    return sum(math.prod(spec.shape(sizes)) * TORCH[spec.dtype].itemsize for spec in specs)
