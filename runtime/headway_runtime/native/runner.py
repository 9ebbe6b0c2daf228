"""A library in place of the register machine: opened from the prepared directory, with the mapped weights as its own.

``AOTIModelContainerRunner`` is the lowest interface that torch has: it opens one library and nothing else. (The loader
of packages would extract archives and look for files by name.) No file is written, no process started.

What a library believes of shapes it does not check, so nothing reaches it unchecked: number of inputs, element types,
shapes and guards are held against the program here, and a tensor with other strides is copied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway_runtime.errors import first_line
from headway_runtime.native import package, processor
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program.errors import ProgramError

Check = Callable[[Sequence[Sequence[int]]], Any]

_MAX_ADMITTED = 4096


class NativeMachine:
    """Has the interface of the register machine. ``check`` raises for shapes that the program does not allow."""

    def __init__(
        self, runner: Any, weights: Mapping[str, torch.Tensor], dtypes: tuple[torch.dtype, ...], check: Check
    ) -> None:
        self._runner = runner
        self._weights = weights  # the library has their addresses and owns none of them
        self._dtypes = dtypes
        self._check = check
        self._admitted: set[tuple[torch.Size, ...]] = set()  # a pod runs few shapes, each of them often

    def call(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run once. Raises ShapeError, TypeError for another element type, RuntimeError from the library."""
        shapes = tuple([value.shape for value in values])
        if shapes not in self._admitted:
            self._check(shapes)
            if len(self._admitted) < _MAX_ADMITTED:
                self._admitted.add(shapes)
        for value, dtype in zip(values, self._dtypes, strict=True):
            if value.dtype is not dtype:
                raise TypeError(f"an input has element type {value.dtype}, the program was compiled for {dtype}")
        try:
            return tuple(self._runner.run([value.contiguous() for value in values]))
        except RuntimeError as error:  # its text goes on with addresses in the library
            raise RuntimeError(first_line(error, 400)) from None


@dataclass(frozen=True, slots=True)
class Library:
    """Native code beside a prepared program. ``guards``: what a pod checks beside the program's own."""

    file: Path
    target: str
    guards: tuple[ex.Expr, ...]

    def open(
        self,
        weights: Mapping[str, torch.Tensor],
        dtypes: tuple[torch.dtype, ...],
        check: Check,
        *,
        instances: int = 1,
    ) -> NativeMachine:
        """Open it and give it its weights, by their names in the document; none is copied. So many runs are possible at
        a time; one more waits.

        Raises ProgramError ``IncompatibleVersion`` when it cannot be opened here, ``UnsafeArtifact`` when it asks for
        weights that the program does not have.
        """
        try:
            runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(self.file), instances)
        except RuntimeError as error:
            raise _incompatible(f"the native library cannot be opened here: {first_line(error, 400)}") from error
        names: Mapping[str, str] = runner.get_constant_names_to_original_fqns()
        if unknown := sorted(set(names.values()) - weights.keys()):
            message = f"the native library asks for weights that the program does not have: {unknown[:4]}"
            raise ProgramError("ArtifactVerified", "UnsafeArtifact", message)
        constants = {name: weights[value] for name, value in names.items()}
        if constants:
            runner.update_constant_buffer(constants, False, True, True)
        return NativeMachine(runner, constants, dtypes, check)


def find(directory: Path, program: str, device: torch.device) -> Library | None:
    """The library of a program in a prepared directory; None when it has none.

    Raises ProgramError ``IncompatibleVersion`` when it is for another torch, processor or device.
    """
    try:
        manifest = package.Manifest.parse(package.manifest_file(directory).read_bytes())
    except FileNotFoundError:
        return None
    here = torch.__version__.partition("+")[0]
    if manifest.torch != here:
        raise _incompatible(f"the native package was compiled with torch {manifest.torch}, and this runtime has {here}")
    if why := processor.lacking(manifest.features):
        raise _incompatible(f"the native package is for target {manifest.target}: {why}")
    if device.type != package.CPU:
        raise _incompatible("the native package is for CPUs, and spec.device.kind is gpu")
    guards = tuple(ex.from_json(guard) for guard in manifest.programs[program])
    return Library(package.library_file(directory, program), manifest.target, guards)


def _incompatible(what: str) -> ProgramError:
    advice = "compile it for this runtime (headway compile), or serve the .pt2 that it was made from"
    return ProgramError("ArtifactVerified", "IncompatibleVersion", f"{what}; {advice}")
