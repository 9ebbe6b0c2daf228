"""The field ``steps`` of a record: what is done to a request before the program runs, and to its answer afterwards.

    text ──► ids, mask ─┐
    image ──► pixels ───┴► preprocess ─► the program ─► postprocess ─► label, score

Only data: names of inputs, outputs and programs of the same archive, numbers, and words of short lists. Whether they
fit the programs is asked by ``prepare.wiring``. The same document is read when the file is inspected and when a pod
loads; it has no field that one of the two would read otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of
from typing import Any

from headway_runtime.prepare.beside.fields import fields, listed, name, one_of, real, typed, whole
from headway_runtime.prepare.errors import Refusal

MAX_LENGTH = 1 << 20
MAX_EDGE = 4096
MAX_TOP = 100
MAX_CHANNELS = 4

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
CHANNELS = {"RGB": 3, "L": 1}
LAYOUTS = ("NCHW", "NHWC")

Edges = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Text:
    """A BYTES input of UTF-8 texts becomes token ids, by the archive's tokenizer.

    ``ids``, ``mask`` (1 for a token, 0 where a shorter text is filled up), ``types``: inputs, [rows, length].
    ``max_length`` tokens at most, special ones included; a longer text is cut when ``truncate``, else refused.
    """

    ids: str
    input: str = "text"
    mask: str | None = None
    types: str | None = None
    max_length: int | None = None
    truncate: bool = False

    @property
    def fills(self) -> tuple[str, ...]:
        """The inputs that it gives."""
        return tuple(found for found in (self.ids, self.mask, self.types) if found is not None)


@dataclass(frozen=True, slots=True)
class Image:
    """A BYTES input of encoded images becomes pixels: resize, crop, ``(scale * value - mean) / std``, layout.

    ``resize``: (height, width), or the shorter edge, or None. ``crop``: (height, width) from the middle. ``mean`` and
    ``std``: one number for each channel, or none at all.
    """

    tensor: str
    input: str = "image"
    resize: int | Edges | None = None
    crop: Edges | None = None
    interpolation: str = "bilinear"
    channels: str = "RGB"
    layout: str = "NCHW"
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def size(self) -> Edges | None:
        """(height, width) of every image that comes out; None when it depends on what comes in."""
        return self.crop or (self.resize if isinstance(self.resize, tuple) else None)


@dataclass(frozen=True, slots=True)
class Labels:
    """The best classes of ``output`` (over its last axis) become two more outputs: names (BYTES) and scores (FP32)."""

    output: str
    top: int = 1
    softmax: bool = False
    label: str = "label"
    score: str = "score"


@dataclass(frozen=True, slots=True)
class Steps:
    """All steps of one program; ``preprocess`` and ``postprocess`` name other programs of the archive."""

    text: Text | None = None
    image: Image | None = None
    preprocess: str | None = None
    postprocess: str | None = None
    labels: Labels | None = None

    def document(self) -> dict[str, Any]:
        """As the record holds it; what has its default is left out."""
        found: dict[str, Any] = {}
        for step in fields_of(self):
            value = getattr(self, step.name)
            if is_dataclass(value):
                named = {part.name: (getattr(value, part.name), part.default) for part in fields_of(value)}
                value = {_spelled(key): _json(given) for key, (given, default) in named.items() if given != default}
            if value is not None:
                found[step.name] = value
        return found

    @property
    def programs(self) -> tuple[str, ...]:
        """The other programs that run."""
        return tuple(found for found in (self.preprocess, self.postprocess) if found is not None)


def parse(value: Any) -> Steps:
    """Raises Refusal ``record.form`` (or ``name.printable``), with the JSON path inside of ``steps``."""
    if typed(value, dict) == {}:
        raise Refusal("record.form", f"no step; known are {sorted(_STEPS)}")
    return Steps(**fields(value, _STEPS))


def _spelled(key: str) -> str:
    return {field: spelling for spelling, field in _SPELLING.items()}.get(key, key)


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def of_document(document: Mapping[str, Any]) -> Steps:
    """The steps of a prepared program, which was inspected; none at all where it declares none."""
    return parse(document["steps"]) if "steps" in document else Steps()


def _text(value: Any) -> Text:
    found = fields(value, _TEXT, required=("ids",))
    text = Text(**{_SPELLING.get(key, key): item for key, item in found.items()})
    if len(set(text.fills)) != len(text.fills):
        raise Refusal("record.form", "ids, mask and types are different inputs")
    return text


def _image(value: Any) -> Image:
    image = Image(**fields(value, _IMAGE, required=("tensor",)))
    channels = CHANNELS[image.channels]
    for key, given in (("mean", image.mean), ("std", image.std)):
        if given and len(given) != channels:
            raise Refusal("record.form", f"{len(given)} numbers for {channels} channels").inside(key)
    return image


def _labels(value: Any) -> Labels:
    labels = Labels(**fields(value, _LABELS, required=("output",)))
    if labels.label == labels.score:
        raise Refusal("record.form", f"label and score are both called {labels.label!r}")
    return labels


def _maybe(value: Any) -> str | None:
    return None if value is None else name(value)


def _edges(value: Any) -> Edges | None:
    if value is None:
        return None
    height, width = _exactly_two(value)
    return whole(height, 1, MAX_EDGE), whole(width, 1, MAX_EDGE)


def _resize(value: Any) -> int | Edges | None:
    return whole(value, 1, MAX_EDGE) if type(value) is int else _edges(value)


def _exactly_two(value: Any) -> list[Any]:
    found = listed(value, 2)
    if len(found) != 2:
        raise Refusal("record.form", "[height, width] is needed")
    return found


def _per_channel(value: Any, low: float) -> tuple[float, ...]:
    return tuple(real(item, low, 1e6) for item in listed(value, MAX_CHANNELS))


def _flag(value: Any) -> bool:
    return bool(typed(value, bool))


_SPELLING = {"maxLength": "max_length"}
_TEXT = {
    "input": name,
    "ids": name,
    "mask": _maybe,
    "types": _maybe,
    "maxLength": lambda v: None if v is None else whole(v, 1, MAX_LENGTH),
    "truncate": _flag,
}
_IMAGE = {
    "input": name,
    "tensor": name,
    "resize": _resize,
    "crop": _edges,
    "interpolation": lambda v: one_of(v, INTERPOLATIONS),
    "channels": lambda v: one_of(v, CHANNELS),
    "layout": lambda v: one_of(v, LAYOUTS),
    "scale": lambda v: None if v is None else real(v, 1e-9, 1e6),
    "mean": lambda v: _per_channel(v, -1e6),
    "std": lambda v: _per_channel(v, 1e-9),
}
_LABELS = {
    "output": name,
    "top": lambda v: whole(v, 1, MAX_TOP),
    "softmax": _flag,
    "label": name,
    "score": name,
}
_STEPS = {"text": _text, "image": _image, "preprocess": name, "postprocess": name, "labels": _labels}
