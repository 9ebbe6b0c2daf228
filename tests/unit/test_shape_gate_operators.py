"""What the gate says of operators, against what the operators do: calls that real models make, and random ones."""

import random
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed operators
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import operators, preconditions
from headway_runtime.program import functions
from headway_runtime.program.shape_gate.fast import FAST, pointwise
from headway_runtime.program.shape_gate.steps import Gauge, RejectedCallError, _Operator
from headway_runtime.program.shape_gate.unknown import UNKNOWN
from headway_runtime.program.shape_gate.windows import WINDOWS

from tests.hostile.fuzz_arguments import Arguments

F32, I64, BOOL, F16 = torch.float32, torch.int64, torch.bool, torch.bfloat16


def t(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=I64)


IMAGE, HEADS = t(2, 6, 9, 11), t(2, 4, 5, 8)
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("aten.linear.default", [t(2, 3, 8), t(5, 8), t(5)], {}),
    ("aten.linear.default", [t(8), t(5, 8)], {}),
    ("aten.mm.default", [t(2, 3), t(3, 4)], {}),
    ("aten.bmm.default", [t(2, 3, 4), t(2, 4, 5)], {}),
    ("aten.matmul.default", [t(7, 1, 3, 4), t(2, 4, 5)], {}),
    ("aten.matmul.default", [t(2, 3), t(3, 4, dtype=F32)], {}),
    ("aten.addmm.default", [t(4), t(2, 3), t(3, 4)], {"alpha": 2}),
    ("aten.baddbmm.default", [t(2, 1, 1), t(2, 3, 4), t(2, 4, 5)], {}),
    ("aten.scaled_dot_product_attention.default", [HEADS, HEADS, HEADS], {}),
    ("aten.scaled_dot_product_attention.default", [HEADS, t(2, 4, 7, 8), t(2, 4, 7, 8), t(2, 1, 5, 7)], {}),
    ("aten.softmax.int", [t(2, 3), -1], {}),
    ("aten.softmax.int", [t(2, 3, dtype=F16), -1, F32], {}),
    ("aten.log_softmax.int", [t(2, 3), 0], {}),
    ("aten.layer_norm.default", [t(2, 3, 8), [8], t(8), t(8)], {}),
    ("aten.layer_norm.default", [t(2, 3, 8), [3, 8]], {}),
    ("aten.rms_norm.default", [t(2, 3, 8), [8], t(8)], {}),
    ("aten.group_norm.default", [IMAGE, 3, t(6), t(6)], {}),
    ("aten.batch_norm.default", [IMAGE, t(6), t(6), t(6), t(6), False, 0.1, 1e-5, False], {}),
    ("aten.mean.dim", [t(2, 3, 4), [-1], True], {}),
    ("aten.mean.dim", [t(2, 3, 4), [0, 2]], {"dtype": torch.float64}),
    ("aten.mean.dim", [t(2, 3, 4), None], {}),
    ("aten.sum.dim_IntList", [ids(2, 3), [1]], {}),
    ("aten.sum.dim_IntList", [t(2, 3, dtype=BOOL), [0], True], {}),
    ("aten.sum.dim_IntList", [t(2, 3), []], {}),
    ("aten.amax.default", [t(2, 3), [-1]], {}),
    ("aten.amin.default", [t(2, 3)], {}),
    ("aten.argmax.default", [t(2, 3), 1], {}),
    ("aten.argmin.default", [t(2, 3), 1, True], {}),
    ("aten.cumsum.default", [t(2, 3, dtype=BOOL), 1], {}),
    ("aten.cumsum.default", [t(2, 3), 0], {"dtype": torch.float64}),
    ("aten.topk.default", [t(2, 9), 4], {}),
    ("aten.topk.default", [t(9, 2), 4, 0], {}),
    ("aten.embedding.default", [t(9, 4), ids(2, 3)], {}),
    ("aten.cat.default", [[t(2, 3), t(2, 5)], -1], {}),
    ("aten.cat.default", [[t(2, 3), t(4, 3)]], {}),
    ("aten.stack.default", [[t(2, 3), t(2, 3)], -1], {}),
    ("aten.stack.default", [[t(2, 3), t(2, 3)], 1], {}),
    ("aten.index.Tensor", [t(5, 6, 7), [ids(3)]], {}),
    ("aten.index.Tensor", [t(5, 6, 7), [None, ids(2, 1), ids(3)]], {}),
    ("aten.index.Tensor", [t(5, 6, 7), [ids(3), None, ids(2, 1)]], {}),
    ("aten.gather.default", [t(5, 6), 1, ids(5, 2)], {}),
    ("aten.masked_fill.Scalar", [t(2, 3), t(3, dtype=BOOL), -1.5], {}),
    ("aten.tril.default", [t(3, 3), 1], {}),
    ("aten.triu.default", [t(3, 3)], {}),
    ("aten.zeros_like.default", [t(2, 3)], {"dtype": I64}),
    ("aten.full_like.default", [t(2, 3), 7], {}),
    ("aten.ones_like.default", [ids(2, 3)], {}),
    ("aten.flip.default", [t(2, 3), [0, 1]], {}),
    ("aten.roll.default", [t(2, 3), [1, 1], [0, 1]], {}),
    ("aten.sort.default", [t(2, 3)], {}),
    ("quantized_decomposed.quantize_per_tensor.default", [t(2, 3), 0.1, 0, -128, 127, torch.int8], {}),
    (
        "quantized_decomposed.dequantize_per_tensor.default",
        [t(2, 3, dtype=torch.int8), 0.1, 0, -128, 127, torch.int8],
        {},
    ),
    ("aten.conv1d.default", [t(2, 6, 9), t(4, 6, 3), t(4), [2], [1]], {}),
    ("aten.conv2d.default", [IMAGE, t(4, 3, 3, 2), None, [2, 1], [1, 0], [2, 1], 2], {}),
    ("aten.conv2d.default", [IMAGE, t(6, 1, 3, 3)], {"groups": 6}),
    ("aten.conv3d.default", [t(2, 3, 5, 6, 7), t(4, 3, 2, 2, 2)], {}),
    ("aten.convolution.default", [IMAGE, t(4, 6, 3, 3), t(4), [1], [1], [1], False, [0], 1], {}),
    ("aten.max_pool1d.default", [t(2, 6, 9), [3]], {}),
    ("aten.max_pool2d.default", [IMAGE, [3, 2], [2, 2], [1, 1]], {}),
    ("aten.avg_pool2d.default", [IMAGE, [2, 2]], {}),
    ("aten.adaptive_avg_pool2d.default", [IMAGE, [1, 3]], {}),
    ("aten.upsample_nearest2d.vec", [IMAGE, None, [1.5, 2.3]], {}),
    ("aten.upsample_bilinear2d.vec", [IMAGE, [5, 6], False, None], {}),
    ("aten.add.Tensor", [t(2, 1), ids(3)], {"alpha": 2}),
    ("aten.mul.Scalar", [ids(2), 2.5], {}),
    ("aten.div.Tensor", [ids(2), ids(2) + 1], {}),
    ("aten.pow.Tensor_Scalar", [ids(2), 2], {}),
    ("aten.where.self", [t(2, 3, dtype=BOOL), t(3), t(1, dtype=torch.float64)], {}),
    ("aten.__and__.Tensor", [t(2, 3, dtype=BOOL), t(3, dtype=BOOL)], {}),
    ("aten.gelu.default", [t(2, 3, dtype=F16)], {"approximate": "tanh"}),
    ("aten.relu_.default", [t(2, 3)], {}),
    ("aten.add_.Tensor", [t(2, 3), t(3)], {}),
    ("aten.clamp.default", [t(2, 3), None, 1], {}),
    ("aten.eq.Scalar", [t(2, 3), 0], {}),
]


def without_memory(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return [without_memory(v) for v in value] if isinstance(value, list) else value


def form(result: Any) -> Any:
    return [form(r) for r in result] if isinstance(result, list | tuple) else "v0"


def described(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return [described(r) for r in result]
    return (tuple(result.shape), result.dtype) if isinstance(result, torch.Tensor) else result


def derived(name: str, args: list[Any], named: dict[str, Any], result: Any) -> Any:
    with torch.inference_mode():
        return described(_Operator(Gauge(), name, form(result))(*without_memory(args), **named))


@pytest.mark.parametrize(("name", "args", "named"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_common_call_has_the_shape_that_the_operator_answers_with(
    name: str, args: list[Any], named: dict[str, Any]
) -> None:
    before = without_memory(args)
    rule = FAST.get(name) or WINDOWS.get(name) or pointwise(name)
    assert rule is not None
    with torch.inference_mode():
        assert rule(*before, **named) is not None, "a form that the rule should know"
        result = functions.resolve(name)(*args, **named)
    assert derived(name, before, named, result) == described(result)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.linear.default", [t(2, 8), t(5, 9)]),
        ("aten.mm.default", [t(2, 3), t(4, 4)]),
        ("aten.add.Tensor", [t(2, 3), t(2)]),
        ("aten.cat.default", [[t(2, 3), t(3, 4)]]),
        ("aten.view.default", [t(2, 3), [4, 2]]),
        ("aten.conv2d.default", [IMAGE, t(4, 5, 3, 3)]),
        ("aten.layer_norm.default", [t(2, 3), [4]]),
        ("aten.add_.Tensor", [t(3), t(2, 3)]),
        ("aten.topk.default", [t(2, 3), 4]),
        ("aten.scaled_dot_product_attention.default", [HEADS, t(2, 4, 5, 7), HEADS]),
        ("aten.lstm.input", [t(5, 2, 3), [t(1, 2, 4)] * 2, [t(16, 9), t(16, 4)], False, 1, 0.0, False, False, False]),
    ],
)
def test_an_operator_that_cannot_take_its_arguments_is_refused(name: str, args: list[Any]) -> None:
    with pytest.raises(Exception):  # noqa: B017 - torch raises what it likes
        functions.resolve(name)(*args)
    with pytest.raises(RejectedCallError, match="cannot take its arguments"):
        derived(name, args, {}, None)


# Calls without meaning (a reduction that does not exist, channels of an empty image) on which the two differ.
MEANINGLESS = {
    "aten._adaptive_avg_pool2d.default",
    "aten.native_channel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.soft_margin_loss.default",
    "aten.tile.default",
    "aten.masked_fill.Scalar",
    "quantized_decomposed.choose_qparams_per_token.default",
    "quantized_decomposed.dequantize_per_tensor.default",
}


def compare(calls: int) -> list[str]:
    """Random calls of every operator that torch accepts: where the gate refuses them, or says something else."""
    arguments, found = Arguments(random.Random()), []
    for name in sorted(operators.names() - MEANINGLESS):
        signature = operators.signature(name)
        assert signature is not None
        for call in range(calls):
            arguments.seed(f"gate{name}{call}")
            args, named, values = arguments.of(signature)
            before = without_memory(args), {k: without_memory(v) for k, v in named.items()}
            try:
                preconditions.check(name, {k: {"str": v} if isinstance(v, str) else v for k, v in values.items()})
                with torch.inference_mode():
                    result = functions.resolve(name)(*args, **named)
            except (Refusal, Exception):
                continue
            try:
                said = derived(name, *before, result)
            except Exception as error:
                found.append(f"{name} {call}: {error}")
                continue
            known = UNKNOWN not in (said if isinstance(said, list) else [said])
            if known and said != described(result):
                found.append(f"{name} {call}: {said} is {described(result)}")
    return found


def test_the_gate_agrees_with_every_operator_on_random_calls_that_torch_accepts() -> None:
    script = "import tests.unit.test_shape_gate_operators as me; [print(line) for line in me.compare(8)]"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]


def test_common_operators_do_not_import_torchs_compiler() -> None:
    script = """
import sys, tests.unit.test_shape_gate_operators as me
for name, args, named in me.CALLS:
    me.derived(name, args, named, None)
assert "sympy" not in sys.modules and "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
