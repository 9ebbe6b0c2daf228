"""Tensor descriptions: element types, and whether sizes and strides stay inside the record that holds the bytes."""

import math
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.errors import Refusal

MAX_AXES = 16
MAX_ELEMENTS = 1 << 40
STRIDED = 7

# number in the file -> (torch's name, bytes per element)
DTYPES: dict[int, tuple[str, int]] = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    10: ("complex64", 8),
    11: ("complex128", 16),
    12: ("bool", 1),
    13: ("bfloat16", 2),
    28: ("uint16", 2),
    29: ("float8_e4m3fn", 1),
    30: ("float8_e5m2", 1),
    34: ("uint32", 4),
    35: ("uint64", 8),
}
ITEM_BYTES = dict(DTYPES.values())
SERVED = frozenset(name for name in ITEM_BYTES if not name.startswith(("complex", "float8")))
"""What an input or output may hold: the element types of the Open Inference Protocol."""
LAYOUTS = {STRIDED: "strided"}
MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
DEVICES = {"cpu", "cuda"}


def dtype(number: int) -> str:
    """torch's name of an element type. Raises Refusal ``tensor.dtype``."""
    if number not in DTYPES:
        raise Refusal("tensor.dtype", number)
    return DTYPES[number][0]


def served_dtype(number: int) -> str:
    """The same, of an input or output. Raises Refusal ``tensor.dtype`` or ``tensor.protocol``."""
    name = dtype(number)
    if name not in SERVED:
        raise Refusal("tensor.protocol", name)
    return name


def device(value: dict[str, Any]) -> str:
    """``cpu`` or ``cuda``: where the export ran. The serving device replaces it, so the index is dropped."""
    if value["type"] not in DEVICES or value.get("index") not in (None, *range(64)):
        raise Refusal("tensor.device", f"{value['type']}:{value.get('index')}")
    return str(value["type"])


def check_meta(meta: dict[str, Any]) -> None:
    """A tensor inside the graph: dense, of a known type, no negative size."""
    dtype(meta["dtype"])
    device(meta["device"])
    if meta["layout"] != STRIDED:
        raise Refusal("tensor.layout", meta["layout"])
    if len(meta["sizes"]) != len(meta["strides"]) or len(meta["sizes"]) > MAX_AXES:
        raise Refusal("tensor.shape", f"{len(meta['sizes'])} sizes, {len(meta['strides'])} strides")
    fixed = [s["as_int"] for s in meta["sizes"] if "as_int" in s]
    if any(n < 0 for n in fixed) or math.prod(n for n in fixed if n) > MAX_ELEMENTS:
        raise Refusal("tensor.shape", fixed)
    if any(s.get("as_int", 0) < 0 for s in [*meta["strides"], meta["storage_offset"]]):
        raise Refusal("tensor.shape", "negative stride or offset")


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor whose bytes are in the archive. Sizes, strides and offset count elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def extent(self) -> int:
        """Elements from the start of the record to the last one this tensor can reach."""
        if 0 in self.shape:
            return 0
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def overlaps(self) -> bool:
        """Whether two indices may lead to one element: an axis that steps no further than the faster ones reach."""
        reach = 0
        for step, size in sorted((s, n) for n, s in zip(self.shape, self.stride, strict=True) if n > 1):
            if step <= reach and 0 not in self.shape:
                return True
            reach += (size - 1) * step
        return False


def stored(meta: dict[str, Any], record_bytes: int) -> Stored:
    """Description of a weight, checked against the size of its record. Raises Refusal ``tensor.*``."""
    check_meta(meta)
    numbers: list[Any] = [s.get("as_int") for s in [*meta["sizes"], *meta["strides"], meta["storage_offset"]]]
    if None in numbers:
        raise Refusal("tensor.shape", "a weight has fixed sizes")
    if max(numbers) > MAX_ELEMENTS:  # also where a size of 0 or 1 makes it harmless here: torch multiplies them
        raise Refusal("tensor.shape", f"strides or offset of {max(numbers)}")
    rank = len(meta["sizes"])
    tensor = Stored(dtype(meta["dtype"]), tuple(numbers[:rank]), tuple(numbers[rank:-1]), numbers[-1])
    item = ITEM_BYTES[tensor.dtype]
    elements = math.prod(tensor.shape)
    reached = max(tensor.extent, tensor.offset) * item
    if record_bytes % item or reached > record_bytes:
        raise Refusal("tensor.bounds", f"{elements} elements, reaching {reached} of {record_bytes} bytes")
    if tensor.overlaps:
        raise Refusal("tensor.overlap", f"{elements} elements in {record_bytes} bytes")
    return tensor
