"""The example inputs that ``torch.export.save`` adds: an archive of their own with a pickle inside.

They become samples: inputs that the program takes, in the order of its inputs. The pickle is never executed: a small
stack machine (``unpickle``) reads the few opcodes that plain tensors need. A pickle that does more was not written by
an honest export, and what else such a file holds is not worth finding out: it is refused. Honest examples that are too
large, or that are no inputs of the program, are left out, and the report says so.
"""

import base64
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from headway_runtime.prepare.beside import record, unpickle
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import trees

MAX_PICKLE = 1 << 20

_ENTRIES = re.compile(
    r"(data\.pkl|version|byteorder|\.format_version|\.storage_alignment|\.data/(serialization_id|version)|"
    r"data/[0-9]{1,6})\Z",
    re.ASCII,
)

Sample = dict[str, Any]


class _LeftOut(Exception):  # noqa: N818  # not an error: said in the report
    """Why honest examples are not used."""


def read(
    archive: zip_.Archive, name: str, *, leaves: Sequence[trees.Path], inputs: Sequence[dict[str, Any]]
) -> tuple[Sample | None, str]:
    """The sample in this entry (as in ``record``, without outputs), or None and why there is none.

    ``leaves`` are the tree paths of ``(args, kwargs)``, ``inputs`` the program's inputs. Raises Refusal
    ``sample.pickle`` (or ``archive.*``) when the entry holds more than plain tensors in plain containers.
    """
    if archive.entries[name].size == 0:
        return None, ""
    try:
        inner = zip_.nested(archive, name)
        if any(not _ENTRIES.match(entry) for entry in inner.entries) or "data.pkl" not in inner.entries:
            raise Refusal("sample.pickle", sorted(inner.entries)[:5])
        if "byteorder" in inner.entries and inner.read("byteorder", 16) != b"little":
            raise Refusal("sample.pickle", "byte order")
        tree = unpickle.load(inner.read("data.pkl", MAX_PICKLE))
        if tree is None:
            return None, ""  # saved without examples
        return _sample(inner, tree, leaves, inputs), ""
    except _LeftOut as why:
        return None, str(why)
    except Refusal as r:
        raise r.within(name) from None


def _sample(
    inner: zip_.Archive, tree: Any, leaves: Sequence[trees.Path], inputs: Sequence[dict[str, Any]]
) -> Sample | None:
    found = [value for path in leaves if isinstance(value := _at(tree, path), unpickle.Tensor)]
    if len(found) != len(inputs):
        raise _LeftOut(f"the example inputs hold {len(found)} tensors, and the program has {len(inputs)} inputs")
    total = 0
    for tensor, spec in zip(found, inputs, strict=True):
        total += math.prod(tensor.shape) * tensors.ITEM_BYTES[tensor.dtype]
        if tensor.dtype != spec["dtype"] or len(tensor.shape) != len(spec["shape"]):
            raise _LeftOut(f"the example of input {spec['name']} is {tensor.dtype} with {len(tensor.shape)} axes")
    if total > record.MAX_SAMPLE_BYTES:
        raise _LeftOut(f"the example inputs have {total:,} bytes; at most {record.MAX_SAMPLE_BYTES:,} are kept")
    return {"inputs": [_tensor(inner, tensor) for tensor in found], "outputs": []}


def _at(tree: Any, path: trees.Path) -> Any:
    """The value at a tree path; None when there is nothing."""
    for step in path:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list | tuple) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def _tensor(inner: zip_.Archive, tensor: unpickle.Tensor) -> dict[str, Any]:
    name = f"data/{tensor.storage.key}"
    item = tensors.ITEM_BYTES[tensor.dtype]
    if name not in inner.entries or inner.entries[name].size != tensor.storage.elements * item:
        raise Refusal("sample.pickle", f"{name} is missing, or has another size")
    if inner.entries[name].size > 2 * record.MAX_SAMPLE_BYTES:
        raise _LeftOut(f"an example input is a view of {inner.entries[name].size:,} bytes")
    data = _gather(inner.read(name, 2 * record.MAX_SAMPLE_BYTES), tensor, item)
    if tensor.dtype == "bool" and data.translate(None, b"\0\1"):
        raise Refusal("sample.pickle", "a boolean that is neither 0 nor 1")
    return {"dtype": tensor.dtype, "shape": list(tensor.shape), "data": base64.b64encode(data).decode("ascii")}


def _gather(data: bytes, tensor: unpickle.Tensor, item: int) -> bytes:
    """The elements in order, out of a storage with strides. The machine has checked that they are inside."""
    if 0 in tensor.shape:
        return b""
    run, axes = 1, len(tensor.shape)  # the last axes that lie in one piece
    while axes and (tensor.stride[axes - 1] == run or tensor.shape[axes - 1] == 1):
        axes -= 1
        run *= tensor.shape[axes]
    outer = itertools.product(*(range(n) for n in tensor.shape[:axes]))
    starts = (tensor.offset + sum(i * s for i, s in zip(at, tensor.stride, strict=False)) for at in outer)
    return b"".join(data[start * item : (start + run) * item] for start in starts)
