"""The native library: found, loaded, and called with plain addresses and sizes; nothing of torch is linked into it.

It is loaded when it is first needed, which may be after the sandbox: it is a file of this package, which a confined
process reads, and its threads are made by its first loop that is worth them.
"""

import ctypes
import struct
from functools import cache
from pathlib import Path

import torch

from headway_runtime.logs import log

FILE = Path(__file__).parent / "libheadway_kernels.so"

_FAILURES = {
    1: "there is not enough memory",
    2: "query_start_loc does not go from 0 to the tokens",
    3: "query_start_loc goes back",
    4: "a sequence is shorter than what is added to it",
    5: "a sequence is longer than its block table",
    6: "a slot beyond the cache's blocks",
    7: "a block beyond the cache's blocks",
    8: "sizes that the kernels have no code for",
    9: "lengths that are not those of its rows",
}
_ATTENTION = struct.Struct("10P17q2d")  # `Attention` in native/headway.h
_LINEAR = struct.Struct("5P7q")  # `Linear`


class Library:
    """The code for one kind of processor. `threads` of each loop, the caller's own among them. Levels are numbered from
    0, the plainest; None: the best that this processor can run.
    """

    def __init__(self, file: Path = FILE, *, level: int | None = None, threads: int = 1) -> None:
        self._library = ctypes.CDLL(str(file))
        self._compare_layout()
        self._attend = self._function("headway_attend", ctypes.c_int, ctypes.c_char_p)
        self._linear = self._function("headway_linear", ctypes.c_int, ctypes.c_char_p)
        sizes = (ctypes.c_int64,) * 4
        self._bytes = self._function("headway_linear_bytes", ctypes.c_int64, *sizes)
        pointers = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._pack = self._function("headway_linear_pack", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, *pointers)
        name = self._function("headway_level", ctypes.c_char_p, ctypes.c_int64)
        self.best: int = self._function("headway_best", ctypes.c_int)()
        if self.best < 0:
            raise OSError("this processor lacks AVX2 and FMA")
        self.level = self.best if level is None else min(level, self.best)
        self.name: str = name(self.level).decode()
        self.threads = threads

    def attend(self, *, pointers: tuple[int, ...], sizes: tuple[int, ...], scale: float, softcap: float) -> None:
        """`Attention` in native/headway.h, in its order, without `threads` and `level`. Raises RuntimeError."""
        packed = _ATTENTION.pack(*pointers, *sizes, self.threads, self.level, scale, softcap)
        if failure := self._attend(packed):
            raise RuntimeError(f"paged attention: {_FAILURES[failure]}")

    def linear_bytes(self, kind: int, outputs: int, inputs: int) -> int:
        """Of a packed weight; 0 where the kernels have no code for it."""
        size: int = self._bytes(self.level, kind, outputs, inputs)
        return size

    def linear_pack(self, kind: int, weight: torch.Tensor, packed: torch.Tensor) -> None:
        """float32 [N, K], contiguous, into `linear_bytes` bytes."""
        outputs, inputs = weight.shape
        self._check(self._pack(self.level, kind, weight.data_ptr(), outputs, inputs, packed.data_ptr()))

    def linear(self, pointers: tuple[int, ...], rows: int, shape: tuple[int, int], kind: int, batch: int = 0) -> None:
        """`Linear` in native/headway.h: x, weights, bias or 0, y, and the addresses of `batch` lengths, or 0; `shape`
        [N, K] of the weight. Raises RuntimeError.
        """
        packed = _LINEAR.pack(*pointers, rows, *shape, kind, self.threads, self.level, batch)
        if failure := self._linear(packed):
            self._check(failure)

    def _compare_layout(self) -> None:
        """A library that is older than this file would read other numbers than those that are meant, and addresses."""
        try:
            layout = tuple((ctypes.c_int64 * 2).in_dll(self._library, "headway_layout"))
        except ValueError:
            layout = ()
        if layout != (_ATTENTION.size, _LINEAR.size):
            raise OSError("the library was built from other sources than those beside it: run `make kernels`")

    def _check(self, failure: int) -> None:
        if failure:
            raise RuntimeError(f"linear: {_FAILURES[failure]}")

    def _function(self, name: str, result: type[object], *arguments: type[object]) -> "ctypes._NamedFuncPointer":
        function = self._library[name]
        function.restype, function.argtypes = result, arguments  # type: ignore[assignment]
        return function


@cache
def native() -> Library | None:
    """The library for this processor, with as many threads as torch has now; None, and one line in the log, where it
    was not built or cannot run.
    """
    try:
        return Library(threads=torch.get_num_threads())
    except OSError as error:
        log("no_native_kernels", level="warning", reason=str(error), consequence="text is generated slowly")
        return None


def describe() -> str:
    """What computes: `native-avx512_bf16`, `native-avx512`, `native-avx2`, `native-neon`, or `reference`."""
    library = native()
    return f"native-{library.name}" if library else "reference"
