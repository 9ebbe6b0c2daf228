"""Golden samples: inputs of a program and the answers that its author's own module gave, as data.

    {"inputs": [{"dtype": "int64", "shape": [2, 7], "data": "<base64>"}, …], "outputs": […]}

In the order of the program's inputs and outputs; ``outputs`` is empty where only inputs are known.
"""

import base64
import binascii
import math
from typing import Any

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal

MAX_BYTES = 4 << 20
"""Of all tensors of all samples together."""

Sample = dict[str, Any]


def parse(items: list[Any]) -> tuple[Sample, ...]:
    """Raises Refusal ``record.form``."""
    left = MAX_BYTES
    samples: list[Sample] = []
    for number, item in enumerate(items):
        try:
            if not isinstance(item, dict) or set(item) != {"inputs", "outputs"}:
                raise Refusal("record.form", "a sample is {inputs, outputs}")
            for side in ("inputs", "outputs"):
                if not isinstance(item[side], list):
                    raise Refusal("record.form", f"{side} is a list")
                for tensor in item[side]:
                    left -= _check_tensor(tensor, left)
        except Refusal as r:
            raise r.inside(number) from None
        samples.append(item)
    return tuple(samples)


def check(sample: Sample, document: dict[str, Any]) -> None:
    """Hold a sample against the program that it is of. Raises Refusal ``record.form``."""
    for side in ("inputs", "outputs"):
        tensors_, specs = sample[side], document[side]
        if side == "outputs" and not tensors_:
            continue
        if len(tensors_) != len(specs):
            raise Refusal("record.form", f"a sample of {len(tensors_)} {side}, the program has {len(specs)}")
        for tensor, spec in zip(tensors_, specs, strict=True):
            fixed = zip(tensor["shape"], spec["shape"], strict=False)
            fits = len(tensor["shape"]) == len(spec["shape"]) and all(n == m for n, m in fixed if isinstance(m, int))
            if tensor["dtype"] != spec["dtype"] or not fits:
                text = f"{side.removesuffix('s')} {spec['name']} is {spec['dtype']} with {len(spec['shape'])} axes"
                raise Refusal("record.form", f"{text}, in a sample {tensor['dtype']} {tensor['shape']}")


def _check_tensor(item: Any, left: int) -> int:
    """The tensor's size in bytes, of which ``left`` are allowed."""
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data"}:
        raise Refusal("record.form", "a sample tensor is {dtype, shape, data}")
    dtype, shape, text = item["dtype"], item["shape"], item["data"]
    if type(dtype) is not str or dtype not in tensors.SERVED or type(text) is not str or not isinstance(shape, list):
        raise Refusal("record.form", "a sample tensor is {dtype, shape, data}")
    if len(shape) > tensors.MAX_AXES or any(type(n) is not int or not 0 <= n <= MAX_BYTES for n in shape):
        raise Refusal("record.form", f"a sample of shape {shape}")
    expected = math.prod(shape) * tensors.ITEM_BYTES[dtype]
    if expected > left:
        raise Refusal("record.form", f"golden samples of more than {MAX_BYTES:,} bytes")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise Refusal("record.form", e) from e
    if len(data) != expected:
        raise Refusal("record.form", f"{len(data)} bytes for {dtype} {shape}")
    if dtype == "bool" and data.translate(None, b"\0\1"):
        raise Refusal("record.form", "a boolean that is neither 0 nor 1")
    return expected
