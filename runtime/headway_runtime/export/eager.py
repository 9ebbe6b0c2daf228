"""What the module itself answers: the golden outputs."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, SymBoolArgument, SymFloatArgument, SymIntArgument, TensorArgument
from torch.utils import _pytree as pytree

from headway_runtime.export.errors import ExportError

Inputs = Mapping[str, torch.Tensor]
_SCALARS = {SymIntArgument: torch.int64, SymFloatArgument: torch.float64, SymBoolArgument: torch.bool}


def bind(module: torch.nn.Module, inputs: Inputs) -> tuple[inspect.BoundArguments, list[str]]:
    """The inputs as ``forward`` takes them, and their names in the program's order. Raises ExportError."""
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise ExportError(f"input {name} is a {type(value).__name__}; every input is a tensor")
    signature = inspect.signature(module.forward)
    try:
        call = signature.bind(**inputs)
    except TypeError as error:
        raise ExportError(
            f"forward cannot be called with the inputs {sorted(inputs)}: {error}; its signature is forward{signature}"
        ) from None
    nested = ([name] if name in inputs else list(value) for name, value in call.arguments.items())
    return call, [name for group in nested for name in group]


def answers(module: torch.nn.Module, inputs: Inputs, outputs: list[Any]) -> tuple[torch.Tensor, ...]:
    """What the module answers, flat, on the CPU. ``outputs`` are the program's output arguments; those that are the
    same for every request are left out, as in the program. Inputs and buffers stay as they were.
    """
    leaves = pytree.tree_leaves(call(module, inputs))
    if len(leaves) != len(outputs):
        raise ExportError(f"the module returned {len(leaves)} values for one input and {len(outputs)} when exported")
    found: list[torch.Tensor] = []
    for leaf, argument in zip(leaves, outputs, strict=True):
        if isinstance(argument, TensorArgument):
            found.append(leaf.detach().cpu().contiguous().clone())
        elif type(argument) in _SCALARS:
            found.append(torch.tensor(leaf, dtype=_SCALARS[type(argument)]))
    return tuple(found)


def call(module: torch.nn.Module, inputs: Inputs) -> Any:
    """The module's own result. Raises ExportError when it fails."""
    try:
        with torch.no_grad(), _buffers_kept(module):
            return module(**{name: tensor.clone() for name, tensor in inputs.items()})
    except Exception as error:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in inputs.items())
        raise ExportError(f"the model fails on inputs of shape {shapes}: {type(error).__name__}: {error}") from error


def output_arguments(program: torch.export.ExportedProgram) -> list[Any]:
    """What the program returns to its caller, in order."""
    return [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]


@contextmanager
def _buffers_kept(module: torch.nn.Module) -> Iterator[None]:
    """A module that counts its calls would answer differently to every sample; a pod starts from the same state."""
    kept = [
        (owner, name, buffer, buffer.clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for owner, name, buffer, content in kept:
            buffer.copy_(content)
            owner._buffers[name] = buffer
