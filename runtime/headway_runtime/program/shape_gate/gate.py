"""A program measured at chosen sizes, on tensors without memory.

A prepared program claims only the shapes and element types of its inputs, outputs and weights. Here it runs once for
each chosen combination of sizes. What comes out must be what the file declares, every operator must accept what it
gets, and what the tensors of a run would take is counted (``ledger``).

The count is a *lower bound* of what a run takes: it holds inputs, outputs and everything between them while the machine
holds it, and not what an operator needs inside itself. So a program that is refused because the bound exceeds what is
there can be proven not to fit; one that passes may still turn out not to fit when it is warmed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.program.datatypes import BY_PROTOCOL, TORCH
from headway_runtime.program.dimensions import TensorSpec
from headway_runtime.program.errors import ProgramError
from headway_runtime.program.interface import Interface
from headway_runtime.program.machine import Machine
from headway_runtime.program.shape_gate.attention import rules_of
from headway_runtime.program.shape_gate.ledger import Largest, Ledger
from headway_runtime.program.shape_gate.rules import META
from headway_runtime.program.shape_gate.steps import Gauge, GaugeBuilder, OverflowingSizeError, RejectedCallError

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Need:
    """What one run at ``sizes`` takes at least, in bytes beside the weights: all live tensors at the worst moment."""

    sizes: Sizes
    peak: int
    largest: Largest


class ShapeGate:
    """The program of a document, measured. Use from one thread."""

    def __init__(self, document: Mapping[str, Any], program: Interface) -> None:
        self._program = program
        self._gauge = Gauge(rules_of(document))
        self._weights = {w["value"]: _weight(w) for w in document["weights"]}
        self._document = document
        self._machine = self._build()

    @property
    def unknown(self) -> dict[str, str]:
        """Operators whose results depend on data, with the arguments that one of their calls has: not checked."""
        return dict(self._gauge.unknown)

    def measure(self, sizes: Sizes) -> Need:
        """Run once at these sizes, which the program admits.

        Raises ProgramError ``ShapeMismatch`` when an output is not what the file declares or an operator cannot take
        its arguments; ``WillNotFit`` when a size cannot even be counted.
        """
        ledger = self._gauge.ledger = Ledger()
        for tensor in self._weights.values():
            ledger.pin(tensor)
        inputs = [
            torch.empty(shape, dtype=BY_PROTOCOL[spec.datatype], device=META)
            for spec, shape in zip(self._program.inputs, self._program.input_shapes(sizes), strict=True)
        ]
        for spec, tensor in zip(self._program.inputs, inputs, strict=True):
            ledger.add(tensor, f"input {spec.name}")
        with torch.inference_mode(), _told(sizes):
            results = self._machine.call(*inputs)
        for spec, result in zip(self._program.outputs, results, strict=True):
            self._compare(spec, result, sizes)
        return Need(sizes, ledger.peak, ledger.largest)

    def shapes(self, values: Sequence[str], sizes: Sizes) -> list[tuple[int, ...] | None]:
        """Shapes of these values of the main graph, at sizes that the program admits; None: data decide, or it is no
        tensor. Raises ProgramError as `measure` does.
        """
        self._gauge.ledger = Ledger()
        machine = self._build(values)
        shapes = self._program.input_shapes(sizes)
        inputs = [
            torch.empty(shape, dtype=BY_PROTOCOL[spec.datatype], device=META)
            for spec, shape in zip(self._program.inputs, shapes, strict=True)
        ]
        with torch.inference_mode(), _told(sizes):
            results = machine.call(*inputs)
        return [tuple(result.shape) if isinstance(result, torch.Tensor) else None for result in results]

    def _compare(self, spec: TensorSpec, result: Any, sizes: Sizes) -> None:
        if isinstance(result, torch.Tensor):
            declared = self._program.declared_shape(spec, sizes)
            shape, dtype = tuple(result.shape), BY_PROTOCOL[spec.datatype]
            same = len(shape) == len(declared) and all(d in (None, n) for n, d in zip(shape, declared, strict=True))
            if not same or result.dtype != dtype:
                said = f"{_name(dtype)}[{', '.join('?' if n is None else str(n) for n in declared)}]"
                found = f"{_name(result.dtype)}{list(shape)}"
                raise _mismatch(f"the file declares output {spec.name} as {said}, it computes {found}, {_at(sizes)}")

    def _build(self, values: Sequence[str] | None = None) -> Machine:
        """The machine of its outputs, or of these values."""
        builder = GaugeBuilder(self._gauge)
        for item in self._document["inputs"]:
            builder.value(item["value"])
        for value, tensor in self._weights.items():
            builder.value(value, tensor)
        for instruction in self._document["nodes"]:
            builder.instruction(instruction)
        written = [i["value"] for i in (*self._document["inputs"], *self._document["weights"]) if i["written"]]
        inputs, outputs = ([i["value"] for i in self._document[side]] for side in ("inputs", "outputs"))
        return builder.finish(inputs, outputs if values is None else list(values), copies=written)


def worth_measuring(combinations: Sequence[Sizes]) -> list[Sizes]:
    """Those that no other exceeds in every size (one of them needs most), and the smallest.

    ``combinations`` come largest first, as :class:`headway_runtime.buckets.Buckets` has them.
    """
    chosen: list[Sizes] = []
    for sizes in combinations:
        if not any(all(other[name] >= size for name, size in sizes.items()) for other in chosen):
            chosen.append(sizes)
    return chosen if combinations[-1] in chosen else [*chosen, combinations[-1]]


@contextmanager
def _told(sizes: Sizes) -> Iterator[None]:
    """What goes wrong while shapes are derived, as ProgramError."""
    try:
        yield
    except OverflowingSizeError as error:
        raise ProgramError("Accepted", "WillNotFit", f"{error}, {_at(sizes)}") from None
    except (RejectedCallError, RuntimeError, ArithmeticError, TypeError, ValueError) as error:
        raise _mismatch(f"{error}, {_at(sizes)}") from None


def _weight(row: Mapping[str, Any]) -> torch.Tensor:
    """The shape of a weight, as the table has it, without its numbers."""
    return torch.empty_strided(row["shape"], row["stride"], dtype=TORCH[row["dtype"]], device=META)


def _mismatch(message: str) -> ProgramError:
    return ProgramError("ArtifactVerified", "ShapeMismatch", message)


def _at(sizes: Sizes) -> str:
    return "at " + (", ".join(f"{name}={size}" for name, size in sizes.items()) or "its fixed sizes")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
