"""What a served model takes, from its metadata and its pod's report; for a file, from its inspection. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway_runtime.bench.errors import BenchError

BATCH = "batch"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output. `axes`: for each axis its size, or the name of its dimension. `images`: its BYTES are files
    of images, not texts.
    """

    name: str
    datatype: str
    axes: tuple[int | str, ...]
    images: bool = False

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at these sizes."""
        return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in self.axes)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model and what it takes. `batch`: the dimension along which requests are joined."""

    name: str
    version: str
    inputs: tuple[TensorInfo, ...]
    batch: str | None

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Every dimension, in the order of the inputs."""
        return tuple(dict.fromkeys(axis for i in self.inputs for axis in i.axes if isinstance(axis, str)))


def from_metadata(document: Mapping[str, Any], known: Sequence[str]) -> ModelInfo:
    """The model of a metadata answer (`GET /v2/models/NAME`).

    Metadata says -1 and no names. `known` are the dimensions of the pod's buckets, all that the program has. Axis 0 is
    `batch` when there is one; a dimension named `<input>.<axis>` has that axis; if there is only one other dimension,
    it has all other axes. What is left gets the name `<input>.<axis>`, and a size of its own.
    """
    others = [name for name in known if name != BATCH]
    inputs = []
    for document_ in document["inputs"]:
        axes: list[int | str] = []
        for axis, size in enumerate(map(int, document_["shape"])):
            own = f"{document_['name']}.{axis}"
            if size >= 0:
                axes.append(size)
            elif axis == 0 and own not in known and (BATCH in known or not known):
                axes.append(BATCH)
            else:
                axes.append(others[0] if len(others) == 1 else own)
        instead = document_.get("parameters", {}).get("instead", [])
        images = any(len(tensor["shape"]) == 4 for tensor in instead)  # pixels; tokens have two axes
        inputs.append(TensorInfo(document_["name"], document_["datatype"], tuple(axes), images))
    batch = BATCH if any(BATCH in tensor.axes for tensor in inputs) else None
    return ModelInfo(str(document["name"]), str(document["versions"][0]), tuple(inputs), batch)


def with_inspection(model: ModelInfo, program: Mapping[str, Any]) -> ModelInfo:
    """The same with the names of dimensions that the inspection of its file gives (`headway inspect --json`).

    Raises BenchError for an axis whose size is computed from a dimension: such inputs cannot be made up.
    """
    shapes = {tensor["name"]: tensor["shape"] for tensor in program["inputs"]}
    if any(tensor.name not in shapes for tensor in model.inputs):
        return model  # a step before the program takes other inputs
    inputs = []
    for tensor in model.inputs:
        axes = tuple(int(text) if text.isdigit() else text for text in shapes[tensor.name])
        odd = next((axis for axis in axes if isinstance(axis, str) and axis not in program["dimensions"]), None)
        if odd is not None:
            raise BenchError(f"input {tensor.name}: a size is computed ({odd}); give requests with --samples")
        inputs.append(replace(tensor, axes=axes))
    return replace(model, inputs=tuple(inputs), batch=program["batch"])


def largest_sizes(model: ModelInfo, buckets: Mapping[str, Sequence[int]], otherwise: int = 16) -> dict[str, int]:
    """The largest admitted size of each dimension: that of its buckets, where the pod has said so."""
    return {name: max(buckets[name]) if buckets.get(name) else otherwise for name in model.dimensions}
