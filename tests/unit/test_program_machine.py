"""The register machine: order, releases, lists, keywords, branches, and what a large program costs to build."""

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from headway_runtime.program import ProgramError, functions
from headway_runtime.program.machine import Builder, Machine


def build(inputs: list[str], nodes: list[dict[str, Any]], outputs: list[str], **options: Any) -> Machine:
    builder = Builder(options.pop("function", functions.resolve), functions.constant(torch.device("cpu")))
    for name in inputs:
        builder.value(name)
    for node in nodes:
        builder.instruction({"kwargs": {}, **node})
    return builder.finish(inputs, outputs, **options)


def v(name: str) -> dict[str, str]:
    return {"v": name}


def test_values_lists_and_keywords_reach_the_operator() -> None:
    machine = build(
        ["i0"],
        [
            {"op": "aten.sym_size.int", "args": [v("i0"), 0], "out": "v0"},
            {"op": "_operator.mul", "args": [v("v0"), 2], "out": "v1"},
            {"op": "aten.cat.default", "args": [[v("i0"), v("i0")]], "out": "v2"},
            {"op": "aten.view.default", "args": [v("v2"), [v("v1"), -1]], "out": "v3"},
            {"op": "aten.add.Tensor", "args": [v("v3"), v("v3")], "kwargs": {"alpha": v("v0")}, "out": "v4"},
            {
                "op": "aten.sum.dim_IntList",
                "args": [v("v4"), [1]],
                "kwargs": {"dtype": {"dtype": "float64"}},
                "out": "v5",
            },
        ],
        ["v5", "v1"],
    )
    total, rows = machine.call(torch.ones(3, 4))
    assert rows == 6
    assert torch.equal(total, torch.full((6,), 16.0, dtype=torch.float64))


def test_several_results_are_unpacked_and_unused_ones_ignored() -> None:
    machine = build(["i0"], [{"op": "aten.topk.default", "args": [v("i0"), 2], "out": [None, "v0"]}], ["v0"])
    assert machine.call(torch.tensor([1.0, 9.0, 5.0]))[0].tolist() == [1, 2]
    short = build(["i0"], [{"op": "aten.chunk.default", "args": [v("i0"), 3], "out": ["v0", "v1", "v2"]}], ["v2"])
    assert short.call(torch.arange(3))[0].tolist() == [2]
    with pytest.raises(RuntimeError, match="returned 2 values"):
        short.call(torch.arange(2))


def test_an_intermediate_value_is_released_after_its_last_use() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def function(name: str) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> torch.Tensor:
            gc.collect()
            seen.append(sum(r() is not None for r in alive))
            result = x + 1
            alive.append(weakref.ref(result))
            return result

        return call

    seen: list[int] = []
    nodes = [{"op": "f", "args": [v(f"v{i}" if i >= 0 else "i0")], "out": f"v{i + 1}"} for i in range(-1, 5)]
    build(["i0"], nodes, ["v5"], function=function).call(torch.ones(1))
    assert max(seen) == 1


def test_a_branch_is_chosen_at_run_time() -> None:
    branch = {
        name: {
            "inputs": [f"{name}0"],
            "nodes": [{"op": op, "args": [v(f"{name}0")], "kwargs": {}, "out": f"{name}1"}],
            "outputs": [v(f"{name}1")],
        }
        for name, op in (("t", "aten.neg.default"), ("f", "aten.exp.default"))
    }
    node = {"op": "cond", "args": [v("i0"), v("i1")], "out": ["v0"], "branches": [branch["t"], branch["f"]]}
    machine = build(["i0", "i1"], [node], ["v0"])
    x = torch.tensor([0.0, 1.0])
    assert machine.call(torch.tensor(True), x)[0].tolist() == [0.0, -1.0]
    assert torch.equal(machine.call(torch.tensor(False), x)[0], x.exp())


def test_what_a_program_writes_to_is_its_own_for_the_run() -> None:
    machine = build(["i0"], [{"op": "aten.add_.Tensor", "args": [v("i0"), 1], "out": "v0"}], ["v0"], copies=["i0"])
    x = torch.zeros(2)
    assert machine.call(x)[0].tolist() == [1.0, 1.0]
    assert x.tolist() == [0.0, 0.0]


def test_an_operator_off_the_list_is_not_even_looked_up() -> None:
    for name in ("aten.from_file.default", "os.system", "aten.__class__.mro", "higher_order.print"):
        with pytest.raises(ProgramError) as error:
            functions.resolve(name)
        assert error.value.reason == "UnsafeArtifact"


def test_a_size_that_outgrows_64_bits_is_an_error() -> None:
    machine = build(["i0"], [{"op": "_operator.mul", "args": [v("i0"), v("i0")], "out": "v0"}], ["v0"])
    with pytest.raises(OverflowError, match="64 bits"):
        machine.call(2**62)


def test_a_program_of_2000_nodes_is_built_in_half_a_second() -> None:
    nodes = [{"op": "aten.add.Tensor", "args": [v(f"v{i - 1}" if i else "i0"), 1], "out": f"v{i}"} for i in range(2000)]
    build(["i0"], nodes[:1], ["v0"])
    started = time.process_time()
    machine = build(["i0"], nodes, ["v1999"])
    assert time.process_time() - started < 0.5
    assert machine.call(torch.zeros(1))[0].item() == 2000.0


@pytest.mark.parametrize(("base", "exponent"), [(3, 2**62), (2**62, 64), (2.0, 1e300), (-2.0, 0.5), (0, -1)])
def test_a_power_without_a_size_for_a_result_is_an_error_at_once(base: float, exponent: float) -> None:
    with pytest.raises((ArithmeticError, ValueError)):
        functions.resolve("_operator.pow")(base, exponent)
