"""Fewer operators, the same answers: whole decoders, and what may and may not be put together."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.export.generate import export_decoder
from headway_runtime.kernels.pointwise import Pointwise, pointwise
from headway_runtime.program import decoder as decoders
from headway_runtime.program import functions, load
from headway_runtime.program.decoder import Decoder, read_decoder
from headway_runtime.program.fusion import fuse, patterns, simplify, trial, views
from headway_runtime.program.fusion import lean as lean_module
from headway_runtime.program.fusion.graph import Node

from tests.decoders import FAMILIES, tiny, tiny_model, tiny_tokenizer
from tests.unit.decoder_steps import greedy, prepared, step

KERNELS = pointwise()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no native kernels for this processor")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def opened(directory: Path) -> Decoder:
    return read_decoder(directory).open(blocks=64, cache_dtype=torch.float32, precision=Precision.EXPORTED)


def operators(decoder: Decoder) -> int:
    return len(decoder._machine._steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_with_fewer_operators_answers_alike(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = prepared(tiny(tmp_path, family), tmp_path / "prepared")
    fused = opened(directory)
    monkeypatch.setattr(decoders, "pointwise", lambda: None)
    plain = opened(directory)
    assert operators(fused) < 0.4 * operators(plain)
    tokens = [(11 * n + 5) % 384 for n in range(60)]
    for parts in (
        [(tokens[:1], 0, [1])],
        [(tokens[:33], 0, [1, 2, 3]), (tokens[:7], 0, [4])],
        [(tokens[:34], 33, [1, 2, 3]), (tokens[:40], 7, [4, 5, 6]), (tokens[20:21], 0, [7])],
    ):
        torch.testing.assert_close(fused.step(step(parts)), plain.step(step(parts)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_decoder_of_16_bits_computes_in_32_between_its_products(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = export_decoder(tiny_model(family).to(torch.bfloat16), tiny_tokenizer(), path=tmp_path / "half.pt2").path
    directory = prepared(source, tmp_path / "prepared")
    fused = opened(directory)
    for golden in fused.facts.golden:
        assert greedy(fused, golden.prompt, len(golden.tokens)) == list(golden.tokens)
    with monkeypatch.context() as patch:
        patch.setattr(decoders, "pointwise", lambda: None)
        plain = opened(directory)
    assert operators(fused) < 0.4 * operators(plain)
    assert fused.weights_bytes == plain.weights_bytes
    tokens = [(11 * n + 5) % 384 for n in range(40)]
    answers = [decoder.step(step([(tokens, 0, [1, 2, 3])])) for decoder in (fused, plain)]
    torch.testing.assert_close(*answers, rtol=0.05, atol=0.05 * float(answers[1].abs().max()))


def test_one_of_16_bits_that_would_answer_otherwise_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = export_decoder(tiny_model().to(torch.bfloat16), tiny_tokenizer(), path=tmp_path / "half.pt2").path
    directory = prepared(source, tmp_path / "prepared")
    monkeypatch.setattr(lean_module, "NARROW", 1e-6)
    assert operators(opened(directory)) > 100


@pytest.mark.parametrize("broken", ["norm", "add_norm", "gate", "rotate"])
def test_what_answers_otherwise_is_not_used(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the larger operators in turn is off by a few hundredths, in one direction here and in another there."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(trial, "log", lambda event, **fields: told.append({"event": event, **fields}))
    right: Callable[..., Any] = getattr(Pointwise, broken)

    def wrong(*args: Any) -> Any:
        found = right(*args)
        last = found[-1] if isinstance(found, tuple) else found
        off = last * torch.linspace(0.95, 1.05, last.shape[-1])
        return (found[0], off) if isinstance(found, tuple) else off

    directory = prepared(tiny(tmp_path, "gemma3"), tmp_path / "prepared")
    written = operators(opened(directory))
    monkeypatch.setattr(Pointwise, broken, wrong)
    assert operators(opened(directory)) > 2 * written
    assert [line["event"] for line in told] == ["fused", "not_fused"]


def test_a_step_that_fails_leaves_the_program_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Pointwise, "gate", fail)
    directory = prepared(tiny(tmp_path), tmp_path / "prepared")
    assert operators(opened(directory)) > 100


def test_what_takes_more_memory_than_a_trial_may_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values of a watched step are kept at once, which nobody made room for."""
    directory = prepared(tiny(tmp_path), tmp_path / "prepared")
    reasons: list[str] = []
    monkeypatch.setattr(trial, "log", lambda event, **fields: reasons.append(fields.get("reason", event)))
    cache = 2 * 2 * 2 * 16 * 4 * 8 * 16  # keys and values, layers, heads, width, float32; blocks and their tokens
    for bound, reason in ((cache - 1, "cache of 8 blocks"), (cache, "values of a step"), (cache * 100, "fused")):
        monkeypatch.setattr(trial, "MOST_BYTES", bound)
        opened(directory)
        assert reason in reasons.pop()


# Single rewrites, on instructions written down by hand

D, H = 8, 3
SIZES = (4, 6)


def node(out: str, op: str, *args: Any, **kwargs: Any) -> Node:
    return {"op": f"aten.{op}", "args": list(args), "kwargs": kwargs, "out": out}


def v(name: str) -> dict[str, str]:
    return {"v": name}


def made_of(nodes: Sequence[Node], shape: Callable[[int], Sequence[int]], **constants: torch.Tensor) -> list[str]:
    """The operators that are left of nodes over one input `x`, whose last is the output; the answers are compared."""
    assert KERNELS is not None
    tables = dict(constants)
    inputs = [torch.randn(*shape(size)) for size in SIZES]
    names = [n["out"] for n in nodes]

    def run(
        instructions: Sequence[Node], outputs: Sequence[str], known: Any, x: torch.Tensor, more: Any = None
    ) -> tuple[Any, ...]:
        document = {
            "inputs": [{"value": "x", "written": False}],
            "outputs": [{"value": name} for name in outputs],
            "weights": [],
            "nodes": instructions,
        }
        resolve = lambda name: (more or {}).get(name) or functions.resolve(name)  # noqa: E731
        return load.build(document, known, torch.device("cpu"), function=resolve).call(x)

    runs = [{"x": x, **dict(zip(names, run(nodes, names, tables, x), strict=True))} for x in inputs]
    found = fuse(nodes, tables, runs, names[-1:], kernels=KERNELS)
    assert found is not None
    for x in (*inputs, torch.randn(*shape(9)), torch.randn(*shape(1))):
        (wanted,) = run(nodes, names[-1:], tables, x)
        (answered,) = run(found.nodes, found.outputs, found.constants, x, found.functions)
        torch.testing.assert_close(answered, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    return [n["op"].removeprefix("aten.") for n in found.nodes]


def norm(x: str, *, keep: bool = True, axis: int = -1, power: int = 2, epsilon: Any = 1e-5) -> list[Node]:
    return [
        node("squares", "pow.Tensor_Scalar", v(x), power),
        node("mean", "mean.dim", v("squares"), [axis], keep),
        node("more", "add.Tensor", v("mean"), epsilon),
        node("root", "rsqrt.default", v("more")),
        node("scaled", "mul.Tensor", v(x), v("root")),
        node("normed", "mul.Tensor", v("weight"), v("scaled")),
    ]


WEIGHT = torch.randn(D)


def test_a_norm_is_one_operator_and_with_a_sum_before_it_too() -> None:
    assert made_of(norm("x"), lambda n: (1, n, D), weight=WEIGHT) == [patterns.NORM]
    summed = [node("twice", "mul.Tensor", v("x"), 2.0), node("sum", "add.Tensor", v("x"), v("twice")), *norm("sum")]
    both = [*summed, node("used", "add.Tensor", v("normed"), v("sum"))]
    assert made_of(both, lambda n: (1, n, D), weight=WEIGHT) == ["mul.Tensor", patterns.ADD_NORM, "add.Tensor"]


def test_a_sum_with_a_row_for_all_is_left_where_it_was() -> None:
    summed = [node("sum", "add.Tensor", v("x"), v("bias")), *norm("sum")]
    found = made_of(summed, lambda n: (n, D), weight=WEIGHT, bias=torch.randn(D))
    assert found == ["add.Tensor", patterns.NORM]


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        (norm("x", power=4), (3, D)),
        (norm("x", axis=0), (D, D)),
        (norm("x", keep=False), (D, D)),
        (norm("x", epsilon=v("weight")), (3, D)),
    ],
)
def test_what_only_looks_like_a_norm_is_none(nodes: list[Node], shape: tuple[int, ...]) -> None:
    sizes: Callable[[int], Sequence[int]] = lambda n: (n, *shape) if shape != (D, D) else shape  # noqa: E731
    found = made_of(nodes, sizes, weight=WEIGHT)
    assert patterns.NORM not in found


def test_a_gate_is_one_operator() -> None:
    for kind in (node("a", "silu.default", v("x")), node("a", "gelu.default", v("x"), approximate={"str": "tanh"})):
        nodes = [kind, node("b", "mul.Tensor", v("x"), 3.0), node("out", "mul.Tensor", v("b"), v("a"))]
        assert made_of(nodes, lambda n: (n, D)) == ["mul.Tensor", patterns.GATE]
    other = [node("a", "gelu.default", v("x")), node("out", "mul.Tensor", v("a"), v("x"))]
    assert made_of(other, lambda n: (n, D)) == ["gelu.default", "mul.Tensor"]


def test_constants_are_computed_once() -> None:
    nodes = [node("one", "add.Tensor", v("weight"), 1.0), node("out", "mul.Tensor", v("x"), v("one"))]
    assert made_of(nodes, lambda n: (n, D), weight=WEIGHT) == ["mul.Tensor"]


def test_constants_are_kept_up_to_a_number_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplify, "MAX_CONSTANTS", 2 * D)
    nodes = [node(f"c{n}", "add.Tensor", v("weight"), float(n)) for n in range(4)]
    nodes += [node(f"o{n}", "mul.Tensor", v(f"o{n - 1}" if n else "x"), v(f"c{n}")) for n in range(4)]
    assert made_of(nodes, lambda n: (n, D), weight=WEIGHT) == ["add.Tensor"] * 2 + ["mul.Tensor"] * 4


def test_conversions_to_what_it_is_are_left_out_and_others_stay() -> None:
    same = [node("same", "to.dtype", v("x"), {"dtype": "float32"}), node("out", "mul.Tensor", v("same"), 2.0)]
    assert made_of(same, lambda n: (n, D)) == ["mul.Tensor"]
    other = [node("other", "to.dtype", v("x"), {"dtype": "float64"}), node("out", "mul.Tensor", v("other"), 2.0)]
    assert made_of(other, lambda n: (n, D)) == ["to.dtype", "mul.Tensor"]


def test_a_slice_that_was_whole_in_two_small_steps_is_not_taken_for_whole() -> None:
    nodes = [node("part", "slice.Tensor", v("x"), 0, 0, 8), node("out", "mul.Tensor", v("part"), 2.0)]
    assert made_of(nodes, lambda n: (n, D)) == ["slice.Tensor", "mul.Tensor"]
    whole = [node("all", "slice.Tensor", v("x"), 0, 0, (1 << 63) - 1), node("out", "mul.Tensor", v("all"), 2.0)]
    assert made_of(whole, lambda n: (n, D)) == ["mul.Tensor"]


def test_a_chain_of_views_is_one_or_none() -> None:
    there = [
        node("a", "view.default", v("x"), [1, -1, H, D]),
        node("b", "transpose.int", v("a"), 1, 2),
        node("c", "select.int", v("b"), 0, 0),
        node("d", "transpose.int", v("c"), 0, 1),
    ]
    used = node("out", "mul.Tensor", v("d"), 2.0)
    assert made_of([*there, used], lambda n: (1, n, H * D)) == ["reshape.default", "mul.Tensor"]
    back = [node("e", "unsqueeze.default", v("x"), 0), node("f", "select.int", v("e"), 0, 0)]
    assert made_of([*back, node("out", "mul.Tensor", v("f"), 2.0)], lambda n: (n, D)) == ["mul.Tensor"]


def test_places_in_a_large_tensor_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a weight that is turned before it is multiplied by, they would take more memory than it does."""
    monkeypatch.setattr(views, "MAX_NUMBERS", 8 * D)
    back = [node("e", "unsqueeze.default", v("x"), 0), node("f", "select.int", v("e"), 0, 0)]
    both = [*back, node("out", "mul.Tensor", v("f"), 2.0)]
    assert made_of(both, lambda n: (n, D)) == ["mul.Tensor"]
    assert made_of(both, lambda n: (4 * n, D)) == ["unsqueeze.default", "select.int", "mul.Tensor"]


def test_a_view_that_changes_the_order_stays() -> None:
    nodes = [
        node("a", "unsqueeze.default", v("x"), 0),
        node("b", "transpose.int", v("a"), 1, 2),
        node("out", "mul.Tensor", v("b"), 2.0),
    ]
    assert made_of(nodes, lambda n: (n, D)) == ["unsqueeze.default", "transpose.int", "mul.Tensor"]


def test_a_program_that_writes_or_branches_is_left_alone() -> None:
    assert KERNELS is not None
    write = [node("out", "add_.Tensor", v("x"), 1.0)]
    assert fuse(write, {}, [], ["out"], kernels=KERNELS) is None
    branch: Node = {"op": "cond", "args": [], "kwargs": {}, "out": ["out"], "branches": []}
    assert fuse([branch], {}, [], ["out"], kernels=KERNELS) is None
