"""Bytes that the tensors of a run keep alive: of storages, so that a tensor and all its views count once.

Works on tensors without memory of their own (device ``meta``), whose storages have sizes all the same, and on real
ones, which is how the tests hold it against real runs.
"""

import weakref
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest single storage: bytes, what made it, and the shape of the tensor it was made for."""

    bytes: int = 0
    what: str = ""
    shape: tuple[int, ...] = ()


class Ledger:
    """``live`` now, ``peak`` so far, in bytes. A storage counts from the first tensor that has it to the last."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.largest = Largest()
        self._users: dict[int, int] = {}
        self._references: dict[int, weakref.ref[torch.Tensor]] = {}

    def pin(self, tensor: torch.Tensor) -> None:
        """The storage is accounted for elsewhere (a weight): it and its views never count here."""
        self._users[_storage(tensor)] = -1

    def add(self, tensor: torch.Tensor, what: str, *, halved: bool = False) -> None:
        """A tensor came to be; it leaves by itself when Python drops it. ``halved``: only half its bytes are sure."""
        key = _storage(tensor)
        users = self._users.get(key, 0)
        if users < 0:
            return
        if id(tensor) in self._references:  # an operator handed back the tensor it was given
            return
        size = tensor.untyped_storage().nbytes() // (2 if halved else 1)
        if users == 0:
            self.live += size
            self.peak = max(self.peak, self.live)
            if size > self.largest.bytes:
                self.largest = Largest(size, what, tuple(tensor.shape))
        self._users[key] = users + 1
        identity = id(tensor)

        def leave(_: weakref.ref[torch.Tensor]) -> None:
            del self._references[identity]
            self._users[key] -= 1
            if self._users[key] == 0:
                del self._users[key]
                self.live -= size

        self._references[identity] = weakref.ref(tensor, leave)


def _storage(tensor: torch.Tensor) -> int:
    """Identity of the memory behind a tensor, while any tensor has it."""
    key: int = tensor.untyped_storage()._cdata
    return key
