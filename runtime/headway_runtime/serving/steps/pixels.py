"""One encoded image to an array: a stranger's bytes, so only three formats, and a bound on pixels before any is made.

Pillow's own list of formats is not asked: each reader is called by what the first bytes say. The step gives what
torchvision's `Resize`, `CenterCrop`, `ToTensor` and `Normalize` give of the same image.
"""

import base64
import binascii
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from headway_runtime.errors import InvalidRequestError, TooLargeError, first_line
from headway_runtime.prepare.beside.steps import Image

MAX_PIXELS = 64_000_000  # of an image as it comes: 192 MB of memory while it is decoded
MAX_RATIO = 64  # of its longer edge to the shorter: what it is resized to is bounded likewise

Array = np.ndarray[Any, np.dtype[Any]]

_READERS: tuple[tuple[Callable[[bytes], bool], Callable[[io.BytesIO], Any]], ...] = (
    (lambda data: data.startswith(b"\xff\xd8\xff"), JpegImageFile),
    (lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"), PngImageFile),
    (lambda data: data.startswith(b"RIFF") and data[8:12] == b"WEBP", WebPImageFile),
)
_FILTERS = {
    "bilinear": Pillow.Resampling.BILINEAR,
    "bicubic": Pillow.Resampling.BICUBIC,
    "nearest": Pillow.Resampling.NEAREST,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How pixels become numbers: `factor * value + offset`, by channel; None: they stay whole numbers (uint8)."""

    declared: Image
    factor: Array | None
    offset: Array | None

    @classmethod
    def of(cls, declared: Image, *, floating: bool) -> "Recipe":
        """`floating`: whether the program takes numbers with a fraction."""
        if not floating:
            return cls(declared, None, None)
        scale = 1 / 255 if declared.scale is None else declared.scale
        mean, std = (np.array(values or (default,)) for values, default in ((declared.mean, 0.0), (declared.std, 1.0)))
        return cls(declared, (scale / std).astype(np.float32), (-mean / std).astype(np.float32))

    def array(self, data: bytes, where: str) -> Array:
        """float32 or uint8, [channels, height, width] or [height, width, channels].

        Raises InvalidRequestError, which says `where` and what is wrong; TooLargeError when memory runs out.
        """
        try:
            return self._array(data, where)
        except MemoryError:
            raise TooLargeError(f"{where} needs more memory than this pod has left") from None

    def _array(self, data: bytes, where: str) -> Array:
        image = _shaped(_opened(_raw(data), where, self.declared.channels), self.declared, where)
        found: Array = np.asarray(image)
        found = found[..., None] if found.ndim == 2 else found
        if self.factor is not None and self.offset is not None:
            found = found * self.factor + self.offset
        return np.ascontiguousarray(found.transpose(2, 0, 1)) if self.declared.layout == "NCHW" else found


def _raw(data: bytes) -> bytes:
    """The image itself: JSON carries it as base64."""
    if any(is_(data) for is_, _ in _READERS):
        return data
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return data


def _opened(data: bytes, where: str, mode: str) -> Pillow.Image:
    reader = next((reader for is_, reader in _READERS if is_(data)), None)
    if reader is None:
        raise InvalidRequestError(f"{where} is no JPEG, PNG or WebP (in JSON: base64 of one)")
    try:
        image: Pillow.Image = reader(io.BytesIO(data))
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise InvalidRequestError(f"{where} has {width} x {height} pixels; at most {MAX_PIXELS:,} are decoded")
        if max(width, height) > MAX_RATIO * min(width, height):
            raise InvalidRequestError(f"{where} has {width} x {height} pixels: no edge is {MAX_RATIO} times the other")
        if mode == "RGB" and "transparency" in image.info:
            image = image.convert("RGBA")
        image = ImageOps.exif_transpose(image)
        return image if image.mode == mode else image.convert(mode)
    except (InvalidRequestError, MemoryError):
        raise
    except Exception as error:  # whatever its reader finds
        first = first_line(error, 200)
        raise InvalidRequestError(f"{where} cannot be decoded: {type(error).__name__}: {first}") from None


def _shaped(image: Pillow.Image, declared: Image, where: str) -> Pillow.Image:
    resize, filter_ = declared.resize, _FILTERS[declared.interpolation]
    if isinstance(resize, int):
        width, height = image.size
        shorter = min(width, height)
        wanted = resize * width // shorter, resize * height // shorter
        if wanted[0] * wanted[1] > MAX_PIXELS:
            raise InvalidRequestError(f"{where} would become {wanted[0]} x {wanted[1]} pixels: it is too long")
        image = image.resize(wanted, filter_)
    elif resize is not None:
        image = image.resize((resize[1], resize[0]), filter_)
    if declared.crop is None:
        return image
    return _cropped(image, *declared.crop)


def _cropped(image: Pillow.Image, height: int, width: int) -> Pillow.Image:
    """The middle; black around it where the image is smaller."""
    left, top = _before(image.width, width), _before(image.height, height)
    return image.crop((left, top, left + width, top + height))


def _before(has: int, wanted: int) -> int:
    """Where the middle begins, rounded as torchvision does."""
    return round((has - wanted) / 2) if has >= wanted else -((wanted - has) // 2)
