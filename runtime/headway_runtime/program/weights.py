"""The weights of a prepared program: one read-only mapping of ``weights.bin``, and tensors that view it.

Pages are shared with every other process that maps the file, and a write to a weight, which no checked program makes,
would stop the process at once instead of changing an answer later.
"""

import mmap
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headway_runtime.program.datatypes import TORCH


class Weights:
    """``tensors`` by value name (``w0``, …), shapes and element types as the table says."""

    def __init__(self, path: Path, table: Sequence[Mapping[str, Any]], device: torch.device) -> None:
        self._path = path
        self._table = {row["value"]: row for row in table}
        self._mapping = _map(path)
        self._device = device
        self.tensors = {value: self._tensor(row) for value, row in self._table.items()}

    def _tensor(self, row: Mapping[str, Any]) -> torch.Tensor:
        """A parameter says that it wants a gradient where the author's did. None is ever computed, but torch's kernels
        ask: a matrix product folds its axes otherwise, and rounds otherwise, with a weight that wants one.
        """
        record = _record(self._mapping, row["offset"], row["bytes"]).view(TORCH[row["dtype"]])
        tensor = record.as_strided(row["shape"], row["stride"], row["start"])
        tensor = tensor if self._device.type == "cpu" else tensor.to(self._device)
        wants = row["gradient"] and (tensor.is_floating_point() or tensor.is_complex())
        return tensor.detach().requires_grad_(wants)  # of itself, and not as a view of the mapping

    @property
    def bytes(self) -> int:
        """Of the records that somebody reads; one that several share counts once."""
        rows = (self._table[value] for value in self.tensors)
        return sum({row["offset"]: row["bytes"] for row in rows}.values())

    def release(self, values: Iterable[str]) -> None:
        """Nobody reads these any more: give the memory of their bytes back, unless others share them. Whoever reads
        them all the same gets them from the file again.
        """
        gone = set(values)
        for value in gone:
            self.tensors.pop(value, None)
        kept = {self._table[value]["offset"] for value in self.tensors}
        if self._mapping is None or self._device.type != "cpu":
            return
        with self._path.open("rb") as file:
            for row in (self._table[value] for value in gone):
                first = -(-row["offset"] // mmap.PAGESIZE) * mmap.PAGESIZE
                length = (row["offset"] + row["bytes"]) // mmap.PAGESIZE * mmap.PAGESIZE - first
                if length > 0 and row["offset"] not in kept:
                    self._mapping.madvise(mmap.MADV_DONTNEED, first, length)
                    os.posix_fadvise(file.fileno(), first, length, os.POSIX_FADV_DONTNEED)

    def rest(self) -> None:
        """All that was read so far leaves this process; what is read from here on comes back, page by page."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)


def open_weights(path: Path, table: Sequence[Mapping[str, Any]], device: torch.device) -> dict[str, torch.Tensor]:
    """Tensors by value name, for a program that reads all of them as long as it runs."""
    return Weights(path, table, device).tensors


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
