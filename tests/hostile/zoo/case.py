"""What a case of the zoo is, and how it is exported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

BATCH = Dim("batch", min=1, max=64)
SEQUENCE = Dim("sequence", min=2, max=64)
AUTO = Dim.AUTO
ROWS = {0: BATCH}


@dataclass(frozen=True)
class Case:
    """A module and the example inputs it is exported with. ``batches``: further sizes of the first axis of each input,
    at which the answers are compared. ``examples``: whether
    the example inputs are saved beside the program.
    """

    make: Callable[[], nn.Module]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Any = None
    batches: tuple[int, ...] = ()
    decompose: bool = False
    strict: bool = False
    examples: bool = True

    def export(self, path: Path) -> None:
        torch.manual_seed(3)
        with torch.no_grad():
            program = torch.export.export(
                self.make(), self.args, dict(self.kwargs), dynamic_shapes=self.dynamic, strict=self.strict
            )
            if self.decompose:
                program = program.run_decompositions()
        if not self.examples:
            program.example_inputs = None
        torch.export.save(program, path)
