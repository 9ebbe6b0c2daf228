"""The weights of a prepared program: one read-only mapping of ``weights.bin``, and tensors that view it.

Pages are shared with every other process that maps the file, and a write to a weight, which no checked program makes,
would stop the process at once instead of changing an answer later.
"""

import mmap
import warnings
from pathlib import Path
from typing import Any

import torch

from headway_runtime.program.datatypes import TORCH


def open_weights(path: Path, table: list[dict[str, Any]], device: torch.device) -> dict[str, torch.Tensor]:
    """Tensors by value name (``w0``, …), shapes and element types as the table says.

    A parameter says that it wants a gradient where the author's did. None is ever computed, but torch's kernels ask: a
    matrix product folds its axes otherwise, and rounds otherwise, with a weight that wants one.
    """
    everything = _map(path)
    tensors: dict[str, torch.Tensor] = {}
    for row in table:
        record = _record(everything, row["offset"], row["bytes"]).view(TORCH[row["dtype"]])
        tensor = record.as_strided(row["shape"], row["stride"], row["start"])
        tensor = tensor if device.type == "cpu" else tensor.to(device)
        wants = row["gradient"] and (tensor.is_floating_point() or tensor.is_complex())
        tensors[row["value"]] = tensor.detach().requires_grad_(wants)  # of itself, and not as a view of the mapping
    return tensors


def _map(path: Path) -> mmap.mmap | None:
    """The file, read-only; None when there is nothing in it."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _record(everything: mmap.mmap | None, offset: int, size: int) -> torch.Tensor:
    """The bytes of one weight as a storage of their own: ``as_strided`` in a program counts from its start."""
    if everything is None or size == 0:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # that is the point
        return torch.frombuffer(everything, dtype=torch.uint8, count=size, offset=offset)
