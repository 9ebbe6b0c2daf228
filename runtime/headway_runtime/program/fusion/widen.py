"""A decoder that was exported in 16 bits, with float32 between its products.

Its weights stay in 16 bits. What goes from one product to the next is not rounded any more, which no answer needs, and
the operators between them are those that are put together. An operator that makes 16 bits of something makes 32.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from headway_runtime.program.fusion.graph import Node

HALF = (torch.bfloat16, torch.float16)
MAX_NUMBERS = 1 << 20
"""Of a tensor that is kept in 32 bits instead of 16."""

_TYPES = [{"dtype": "bfloat16"}, {"dtype": "float16"}]
_WIDE = {"dtype": "float32"}


def widen(
    nodes: Sequence[Node], constants: Mapping[str, torch.Tensor]
) -> tuple[list[Node], dict[str, torch.Tensor]] | None:
    """The same instructions and tensors in float32; None for a program that has branches, or multiplies by large
    tensors in a way that is not known.
    """
    half = {name: tensor for name, tensor in constants.items() if tensor.dtype in HALF}
    if any(tensor.numel() > MAX_NUMBERS for tensor in half.values()) or any("branches" in node for node in nodes):
        return None
    wide = {name: tensor.detach().float() for name, tensor in half.items()}
    changed: list[Node] = [{**node, "args": _wider(node["args"]), "kwargs": _wider(node["kwargs"])} for node in nodes]
    return changed, {**constants, **wide}


def _wider(argument: Any) -> Any:
    if argument in _TYPES:
        return _WIDE
    if isinstance(argument, list):
        return [_wider(item) for item in argument]
    if isinstance(argument, dict) and not argument.keys() & {"v", "dtype"}:
        return {name: _wider(item) for name, item in argument.items()}
    return argument
