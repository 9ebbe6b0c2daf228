"""A program that exists, in the words of ``--input``: what its inputs are, and which names are given to their axes."""

from collections.abc import Sequence

from headway_runtime.export.errors import ExportError
from headway_runtime.export.sizes import Size
from headway_runtime.export.specs import InputSpec
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program
from headway_runtime.program.datatypes import BY_PROTOCOL


def specs_of(program: Program) -> list[InputSpec]:
    """A program's inputs as ``--input`` would describe them; a derived size is taken for its own dimension's."""
    by_symbol = {d.symbol: Size(d.name.replace(".", "-"), d.min, d.max) for d in program.dimensions.values()}

    def axis(size: int | Expr) -> int | Size:
        if isinstance(size, int):
            return size
        found = by_symbol.get(str(size.value)) if size.operator == "symbol" else None
        if found is None:
            raise ExportError("samples for derived sizes are not made up; give them with --sample FILE.npz")
        return found

    return [
        InputSpec(i.name, str(BY_PROTOCOL[i.datatype]).removeprefix("torch."), tuple(axis(n) for n in i.shape))
        for i in program.inputs
    ]


def names_of(program: Program, given: Sequence[InputSpec]) -> list[tuple[str, int, str]]:
    """Dimension names that ``--input`` gives to a program that exists. Raises ExportError where they do not fit it."""
    inputs = {spec.name: spec for spec in program.inputs}
    found: list[tuple[str, int, str]] = []
    for spec in given:
        own = inputs.get(spec.name)
        if own is None:
            raise ExportError(f"the program has no input {spec.name!r}; it has {', '.join(inputs)}")
        dtype = str(BY_PROTOCOL[own.datatype]).removeprefix("torch.")
        if spec.dtype != dtype or len(spec.axes) != len(own.shape):
            raise ExportError(f"input {spec.name} of the program is {dtype}{program.describe(own)}")
        for axis, (asked, size) in enumerate(zip(spec.axes, own.shape, strict=True)):
            if isinstance(asked, int) != isinstance(size, int) or (isinstance(asked, int) and asked != size):
                raise ExportError(
                    f"input {spec.name} of the program is {dtype}{program.describe(own)}, axis {axis} differs"
                )
            if isinstance(asked, Size):
                if asked != Size(asked.name):
                    raise ExportError(f"{asked}: an exported program has its ranges already; write {asked.name} alone")
                found.append((spec.name, axis, asked.name))
    return found
