"""How long the rows of tokens may be, for one program: pure, asked once while the pod loads."""

from dataclasses import dataclass

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets
from headway_runtime.errors import FatalError
from headway_runtime.prepare.beside.steps import Text
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program

MOST = 1 << 16  # tokens of a text, where nothing else bounds them


@dataclass(frozen=True, slots=True)
class Lengths:
    """`fitting[n]`: the least length of a run that `n` tokens fit in, for `n` up to the longest text.

    `together`: whether shorter texts may be filled up to the longest one of their run. `why`: what bounds them.
    """

    fitting: tuple[int, ...]
    together: bool
    why: str

    @property
    def longest(self) -> int:
        """Tokens of a text at most."""
        return len(self.fitting) - 1


def lengths_of(text: Text, program: Program, layout: Layout, buckets: Buckets) -> Lengths:
    """For the program that takes the ids. Raises FatalError `UnsupportedProgram` when no length is possible."""
    spec = next(spec for spec in program.inputs if spec.name == text.ids)
    axis = spec.shape[1]
    if not isinstance(axis, Expr):  # it is filled up in every run: the module was exported like that
        longest = min(axis, text.max_length or axis)
        return Lengths((axis,) * (longest + 1), True, f"{text.ids} has {axis}")
    name = next(d.name for d in program.dimensions.values() if d.symbol in axis.symbols())
    ceiling = buckets.largest(name)
    longest = min(ceiling, text.max_length or ceiling, MOST)
    sizes = {other: values[-1] for other, values in buckets.sizes.items()}
    if program.batch is not None:
        sizes[program.batch] = buckets.sizes[program.batch][0]
    possible = [n for n in range(1, ceiling + 1) if program.check({**sizes, name: n}) is None]
    masked = text.mask is not None
    fitting: list[int] = []
    for length in range(longest + 1):
        least = next((n for n in possible if n >= max(length, 1)), None)
        if least is None or (least != max(length, 1) and not masked and length):
            least = 0  # no run takes it
        fitting.append(least)
    while fitting and not fitting[-1]:
        fitting.pop()
    if len(fitting) < 2:
        raise FatalError(
            "UnsupportedProgram",
            f"no text fits {text.ids}: {name} is {program.range(name)}, and the largest bucket is {ceiling}",
            condition="ArtifactVerified",
            field=f"spec.batching.shapeBuckets.{name}",
        )
    bound = "maxLength of the step text" if longest == text.max_length else f"the largest bucket of {name}"
    return Lengths(tuple(fitting), name in layout.padded, bound)
