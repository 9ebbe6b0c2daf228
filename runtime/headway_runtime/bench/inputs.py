"""Arrays for requests: made up from what the model takes, or read from a file. Seeded: the same call gives the same."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.model import ModelInfo, TensorInfo
from headway_runtime.bench.sizes import Distribution

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
"""One request: an array for each input, by name. BF16 is held as the upper halves of FP32, in uint16."""

TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    **{f"{sign}INT{bits}": getattr(np, f"{sign.lower()}int{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "pack")
TEXT = Distribution(3, 60, 15)  # words of a text, where nothing else is said
PHOTO = (640, 480)  # pixels of an image, width first, where no samples are given
TRIED = (999, 99, 9, 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """One request's arrays, and its sizes by dimension."""

    arrays: Arrays
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes requests for a model. `ranges`: least and greatest value of integer inputs, by name."""

    model: ModelInfo
    sizes: Mapping[str, Distribution]
    ranges: Mapping[str, tuple[int, int]]

    def make(self, count: int, seed: int = 0) -> list[Request]:
        """`count` requests."""
        random_, generator = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 - no secret
        made = []
        for _ in range(count):
            sizes = {name: self.sizes[name].draw(random_) for name in self.model.dimensions}

            def values(tensor: TensorInfo, shape: tuple[int, ...]) -> Array:
                if tensor.images:
                    return _images(shape, lambda: _photo(generator))
                if tensor.datatype == "BYTES":
                    return self._texts(tensor, shape, random_)
                return self._values(tensor, shape, generator)

            made.append(self._request(sizes, values))
        return made

    def smallest(self) -> Request:
        """The smallest request, with plain values: an example to show."""
        sizes = {name: self.sizes[name].least for name in self.model.dimensions}
        return self._request(sizes, lambda tensor, shape: _filled(tensor, shape, 1 if _is_mask(tensor) else 0))

    def holding(self, name: str, value: int) -> Request:
        """The smallest request, input `name` full of `value`."""
        made = self.smallest()
        (tensor,) = (tensor for tensor in self.model.inputs if tensor.name == name)
        return replace(made, arrays=made.arrays | {name: _filled(tensor, made.arrays[name].shape, value)})

    def _request(self, sizes: dict[str, int], values: Callable[[TensorInfo, tuple[int, ...]], Array]) -> Request:
        return Request({t.name: values(t, t.shape(sizes)) for t in self.model.inputs}, sizes)

    def _texts(self, tensor: TensorInfo, shape: tuple[int, ...], random_: random.Random) -> Array:
        words = self.sizes.get(words_of(tensor), TEXT)
        texts = [" ".join(random_.choices(WORDS, k=words.draw(random_))) for _ in range(int(np.prod(shape)))]
        return np.array(texts, dtype=object).reshape(shape)

    def _values(self, tensor: TensorInfo, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
        kind = tensor.datatype
        if kind == "BF16":
            halves: Array = generator.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16
            return halves.astype(np.uint16)
        if _is_integer(tensor):
            least, greatest = self.ranges.get(tensor.name, (1, 1) if _is_mask(tensor) else (0, 0))
            return generator.integers(least, greatest, size=shape, dtype=np.int64, endpoint=True).astype(TYPES[kind])
        if kind == "BOOL":
            return np.ones(shape, dtype=np.bool_)
        return generator.standard_normal(shape).astype(TYPES[kind])


def words_of(tensor: TensorInfo) -> str:
    """The name under which the words of a text are a size."""
    return f"{tensor.name}.words"


def find_ranges(maker: Maker, works: Callable[[Request], bool]) -> Maker:
    """A maker that knows, for every integer input, a range that the program takes: 0 to the largest of `TRIED` for
    which `works` is true. Ids beyond a table's end make a program fail; which are, only a trial says.

    Raises BenchError when not even 0 works.
    """
    for tensor in maker.model.inputs:
        if not _is_integer(tensor) or _is_mask(tensor) or tensor.name in maker.ranges:
            continue
        greatest = next((value for value in TRIED if works(maker.holding(tensor.name, value))), None)
        if greatest is None:
            raise BenchError(f"input {tensor.name}: no values that were tried are taken; give --range or --samples")
        maker = replace(maker, ranges={**maker.ranges, tensor.name: (0, greatest)})
    return maker


def read_samples(file: Path, model: ModelInfo) -> list[Request]:
    """Requests from a NumPy archive. Raises BenchError.

    Either an array for each input, whose first axis counts requests, each of one row; or, for requests of different
    sizes, whole requests numbered from 0: `ids.0`, `mask.0`, `ids.1`, and so on.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise BenchError(f"--samples {file}: {error}") from None
    names = [tensor.name for tensor in model.inputs]
    if all(name in arrays for name in names):
        count = min(len(arrays[name]) for name in names)
        found = [{name: arrays[name][at : at + 1] for name in names} for at in range(count)]
    else:
        found = []
        while all(f"{name}.{len(found)}" in arrays for name in names):
            found.append({name: arrays[f"{name}.{len(found)}"] for name in names})
    if not found:
        raise BenchError(f"--samples {file}: it holds {', '.join(arrays)}; wanted: {', '.join(names)}, or NAME.0, …")
    return [_checked(file, request, model.inputs) for request in found]


def _checked(file: Path, request: Arrays, inputs: Sequence[TensorInfo]) -> Request:
    sizes: dict[str, int] = {}
    arrays: Arrays = {}
    for tensor in inputs:
        array = request[tensor.name]
        if tensor.datatype == "BYTES" and array.dtype == np.uint8:  # a file, such as an image
            array = np.array([array.tobytes()], dtype=object)
        if array.ndim != len(tensor.axes):
            raise BenchError(f"--samples {file}: {tensor.name} has {array.ndim} axes; the model's has {tensor.axes}")
        sizes |= {a: n for a, n in zip(tensor.axes, array.shape, strict=True) if isinstance(a, str)}
        arrays[tensor.name] = array if tensor.datatype not in TYPES else array.astype(TYPES[tensor.datatype])
    return Request(arrays, sizes)


def _filled(tensor: TensorInfo, shape: tuple[int, ...], value: int) -> Array:
    if tensor.images:
        return _images(shape, lambda: _encoded(Image.new("RGB", (8, 8), "orange"), "PNG"))
    if tensor.datatype == "BYTES":
        return np.full(shape, "a lazy dog", dtype=object)
    return np.full(shape, value).astype(np.uint16 if tensor.datatype == "BF16" else TYPES[tensor.datatype])


def _photo(generator: np.random.Generator) -> bytes:
    """A made-up photo as a camera's file would be: coarse noise, enlarged."""
    coarse = generator.integers(0, 256, size=(30, 40, 3), dtype=np.uint8)
    return _encoded(Image.fromarray(coarse).resize(PHOTO, Image.Resampling.BICUBIC), "JPEG")


def _encoded(image: Image.Image, form: str) -> bytes:
    file = BytesIO()
    image.save(file, form)
    return file.getvalue()


def _images(shape: tuple[int, ...], make: Callable[[], bytes]) -> Array:
    return np.array([make() for _ in range(math.prod(shape))], dtype=object).reshape(shape)


def _is_integer(tensor: TensorInfo) -> bool:
    return "INT" in tensor.datatype


def _is_mask(tensor: TensorInfo) -> bool:
    return "mask" in tensor.name.lower()
