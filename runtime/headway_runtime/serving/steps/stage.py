"""One program of the chain, with its own buckets and engine: the pod's own, and those before and after it."""

from typing import TYPE_CHECKING

from headway_api.podconfig import Knobs

from headway_runtime.knobs import Settings
from headway_runtime.program import Program

if TYPE_CHECKING:
    from headway_runtime.pod import Model


class Stage:
    """`settings` are the knobs in force, as far as this program can honour them."""

    def __init__(self, name: str, program: Program, model: "Model") -> None:
        self.name, self.program, self.model = name, program, model
        self.inputs = tuple(spec.name for spec in program.inputs)
        self.outputs = tuple(spec.name for spec in program.outputs)
        self.settings: Settings = model.obey(Knobs())

    def axes(self) -> dict[str, int]:
        """The axis of rows of each output whose rows of several runs can be put together."""
        pairs = zip(self.program.outputs, self.model.layout.outputs, strict=True)
        return {
            spec.name: axis
            for spec, axis in pairs
            if axis is not None and all(isinstance(size, int) for at, size in enumerate(spec.shape) if at != axis)
        }

    def apply(self, asked: Knobs) -> None:
        """New knobs."""
        self.settings = self.model.obey(asked)
