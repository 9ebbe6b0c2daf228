"""What fills an input up: the value that its author recorded, else what hides in a mask, else 0, which has to be shown
to be as good as any other.

An input is a mask when its name ends so. A mask hides where it is 0; one that is called ``padding_mask`` where it is 1,
as torch's own layers have it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL

Number = int | float | bool

_MASK = re.compile(r"mask\Z", re.IGNORECASE)
_HIDES_WHERE_TRUE = re.compile(r"pad(ding)?_mask\Z", re.IGNORECASE)
_LENGTH = re.compile(r"len(gth)?s?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fill:
    """The value, and whether the author recorded it or the input is a mask; else any value must do."""

    value: Number
    recorded: bool = False
    mask: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a reason for just this value."""
        return self.recorded or self.mask


def fill_of(spec: TensorSpec, padding: Mapping[str, Number]) -> Fill:
    """What fills this input up. ``padding`` is the record's: input -> value."""
    if spec.name in padding:
        return Fill(_as(padding[spec.name], spec), recorded=True, mask=is_mask(spec))
    return Fill(_as(hiding(spec, padding), spec), mask=is_mask(spec))


def hiding(spec: TensorSpec, padding: Mapping[str, Number]) -> Number:
    """The value with which a mask hides."""
    return padding.get(spec.name, 1 if _HIDES_WHERE_TRUE.search(spec.name) else 0)


def showing(spec: TensorSpec, padding: Mapping[str, Number]) -> Number:
    """The value with which a mask shows."""
    return _as(0 if hiding(spec, padding) else 1, spec)


def is_mask(spec: TensorSpec) -> bool:
    """Whether an input is called a mask."""
    return _MASK.search(spec.name) is not None


def is_length(spec: TensorSpec) -> bool:
    """Whether an input is called a length: whole numbers that say how much of a row is real."""
    return _LENGTH.search(spec.name) is not None and not BY_PROTOCOL[spec.datatype].is_floating_point


def _as(value: Number, spec: TensorSpec) -> Number:
    """The value in the input's own kind of number."""
    dtype = BY_PROTOCOL[spec.datatype]
    if dtype is torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else int(value)


def values(program: Program, fills: Sequence[Fill], name: str) -> str:
    """What fills up the inputs along a dimension, in words: ``ids with 0, mask with 0``."""
    symbol = program.dimensions[name].symbol
    return ", ".join(
        f"{spec.name} with {fill.value}"
        for spec, fill in zip(program.inputs, fills, strict=True)
        if mentions(spec, symbol)
    )


def mentions(spec: TensorSpec, symbol: str) -> bool:
    """Whether a size of an input or output is computed from this symbol."""
    return any(isinstance(size, Expr) and symbol in size.symbols() for size in spec.shape)
