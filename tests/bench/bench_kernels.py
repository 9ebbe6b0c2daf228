"""The kernels of decoders against torch's own operators: CPU time of one call. By hand:

    python -m tests.bench.bench_kernels [--model smollm2|gemma3] [--rounds 9] [--json FILE]

Products: each precision against `aten.linear` in float32 (MKL or oneDNN), for 1, 4, 16 and 64 rows, with as many copies
of each weight as the last cache does not hold: a decoder reads all of its weights in every step. Attention: against
`scaled_dot_product_attention` over keys and values that lie dense, one call for each sequence, which no server could
have for nothing. One thread; all contenders take turns in every round; medians and ranges of CPU time.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from headway_api.types import Precision
from headway_runtime.kernels import linear
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.kernels.library import describe
from torch.nn.functional import linear as aten_linear
from torch.nn.functional import scaled_dot_product_attention

from tests.bench.figures import machine, over_rounds, told, verdict
from tests.unit.kernel_steps import Sequences, Shape

ROWS = (1, 4, 16, 64)
CACHE_BYTES = 48 << 20  # more than the last cache of a processor of today keeps for one core
MOST_COPIES = 64
Contenders = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Model:
    """Outputs and inputs of its products, in the order of a layer; the last is for logits. Heads, key heads, width."""

    products: tuple[tuple[int, int], ...]
    heads: int
    kv_heads: int
    head_dim: int


MODELS = {
    "smollm2": Model(((576, 576), (192, 576), (1536, 576), (576, 1536), (49_152, 576)), 9, 3, 64),
    "gemma3": Model(((1024, 640), (256, 640), (2048, 640), (640, 2048), (262_144, 640)), 4, 1, 256),
}
STEPS = {  # past tokens of each sequence, new ones
    "decode, 1 of 1000": ((1000,), (1,)),
    "decode, 16 of 100": ((100,) * 16, (1,) * 16),
    "decode, 8 of 1000": ((1000,) * 8, (1,) * 8),
    "prefill of 256": ((0,), (256,)),
}


def rounds(contenders: Contenders, number: int) -> dict[str, dict[str, float]]:
    """Spread of each contender's CPU seconds; they take turns."""
    for call in contenders.values():
        call()
    found = []
    for _ in range(number):
        each = {}
        for name, call in contenders.items():
            began = time.process_time()
            call()
            each[name] = time.process_time() - began
        found.append(each)
    return over_rounds(found)


def products(shape: tuple[int, int], rows: int, number: int) -> dict[str, dict[str, float]]:
    """Seconds of one call of each, over enough weights that none of them stays near."""
    outputs, inputs = shape
    copies = min(MOST_COPIES, 1 + CACHE_BYTES // (outputs * inputs))
    weights = [torch.randn(outputs, inputs) / inputs**0.5 for _ in range(copies)]
    x = torch.randn(rows, inputs)
    contenders: dict[str, Callable[[], object]] = {"aten": lambda: [aten_linear(x, weight) for weight in weights]}
    for precision in Precision:
        packed = [linear.pack(weight, precision) for weight in weights]
        contenders[precision.value] = lambda packed=packed: [multiply(x) for multiply in packed]  # type: ignore[misc]
    found = rounds(contenders, number)
    return {name: {of: value / copies for of, value in spread.items()} for name, spread in found.items()}


def attention(model: Model, step: tuple[Sequence[int], Sequence[int]], number: int) -> dict[str, dict[str, float]]:
    """Seconds of one layer's attention."""
    past, new = step
    width = model.head_dim
    shape = Shape(model.heads, model.kv_heads, width, tuple(past), tuple(new), scale=width**-0.5)
    sequences = Sequences(shape)
    contenders: dict[str, Callable[[], object]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        cache = PagedCache(shape.geometry, blocks=shape.blocks, dtype=dtype)
        sequences.run(cache)
        arguments = sequences.now()
        contenders[f"paged {str(dtype).removeprefix('torch.')}"] = lambda c=cache, a=arguments: sequences.attend(c, a)
    dense = [
        (torch.randn(1, model.heads, n, width), *torch.randn(2, 1, model.heads, p + n, width).unbind())
        for p, n in zip(past, new, strict=True)
    ]
    contenders["dense aten"] = lambda: [
        scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1) for q, k, v in dense
    ]
    return rounds(contenders, number)


def row(title: str, found: Mapping[str, Mapping[str, float]], baseline: str) -> str:
    base = found[baseline]["median"]
    cells = [f"{name} {told(spread, 'µs', 1e6)} x{base / spread['median']:.2f}" for name, spread in found.items()]
    return f"{title}: {' · '.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="smollm2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS[options.model]
    print(describe(), json.dumps(machine()))
    figures: dict[str, object] = {"machine": machine(), "kernels": describe()}
    slowest = float("inf")
    with torch.inference_mode():
        for shape in model.products:
            for rows in ROWS:
                title = f"[{rows}, {shape[1]}] by [{shape[0]}, {shape[1]}]"
                figures[title] = found = products(shape, rows, options.rounds)
                slowest = min(slowest, found["aten"]["median"] / found[Precision.EXPORTED.value]["median"])
                print(row(title, found, "aten"), flush=True)
        for name, step in STEPS.items():
            figures[name] = found = attention(model, step, options.rounds)
            print(row(name, found, "dense aten"), flush=True)
    print(verdict("float32 against aten, the least of all products", slowest, 1.0, at_most=False))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
