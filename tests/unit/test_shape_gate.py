"""The shape gate: lies about shapes, programs that ask for more memory than there is, and what it does not know."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.fit import check_shapes, readable
from headway_runtime.memory import Room
from headway_runtime.prepare import inspection, repack
from headway_runtime.program import Program, ProgramError, load_program
from headway_runtime.program.load import read_document
from headway_runtime.program.shape_gate import ShapeGate, worth_measuring
from torch.export import Dim

ROOM = Room(16 << 30, "the container's memory limit")
Document = dict[str, Any]


class Forward(torch.nn.Module):
    """A module that is one function of one input."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x) if self.function.__code__.co_argcount == 2 else self.function(x)  # type: ignore[call-arg]


def opened(folder: Path, function: Callable[..., Any], example: torch.Tensor | None = None) -> tuple[Document, Program]:
    """Export and prepare a function of x [batch, 16], and open it as the pod does."""
    example = torch.ones(2, 16) if example is None else example
    with torch.no_grad():
        program = torch.export.export(
            Forward(function).eval(), (example,), dynamic_shapes=({0: Dim("batch", min=1, max=2**20)},)
        )
    torch.export.save(program, folder / "m.pt2")
    repack.repack(inspection.inspect(str(folder / "m.pt2")), folder / "m.pt2", folder)
    return read_document(folder)[1], load_program(folder, dimension_names={})


def reopened(folder: Path, document: Document) -> Program:
    """The same program with an altered document."""
    repack.program_file(folder, read_document(folder)[0]).write_text(json.dumps(document))
    return load_program(folder, dimension_names={})


def check(document: Document, program: Program, room: Room = ROOM, **asked: list[int]) -> None:
    check_shapes(document, program, resolve_buckets(program, asked or None), room=room, in_use=300 << 20)


def linear(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.relu(self.layer(x))


def test_an_honest_program_passes(tmp_path: Path) -> None:
    document, program = opened(tmp_path, linear)
    check(document, program)
    need = ShapeGate(document, program).measure({"batch": 8})
    assert need.peak == 8 * 4 * (16 + 4 + 4)  # x is the caller's; then both results
    assert need.largest.what == "input x"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["outputs"][0]["shape"].__setitem__(1, 5), "as float32[32, 5], it computes float32[32, 4]"),
        (lambda d: d["outputs"][0].update(shape=[4]), "as float32[4], it computes float32[512, 4]"),
        (lambda d: d["outputs"][0].update(dtype="float64"), "as float64[32, 4], it computes float32[32, 4]"),
        (lambda d: d["inputs"][0]["shape"].__setitem__(1, 17), "aten.linear.default (which computes v0, of float32"),
        (lambda d: d["weights"][0].update(shape=[8, 8], stride=[8, 1]), "cannot take its arguments"),
    ],
)
def test_a_file_that_lies_about_shapes_is_refused_with_what_is_true(
    change: Callable[[Document], Any], says: str, tmp_path: Path
) -> None:
    document, _ = opened(tmp_path, linear)
    change(document)
    lying = reopened(tmp_path, document)
    with pytest.raises(ProgramError) as refused:
        check(document, lying)
    assert (refused.value.condition, refused.value.reason) == ("ArtifactVerified", "ShapeMismatch")
    assert says in refused.value.message
    assert refused.value.message.endswith(("at batch=32", "at x.0=512"))


def doubling(x: torch.Tensor) -> torch.Tensor:
    for _ in range(32):
        x = torch.cat([x, x], 1)
    return x[:, :1]


HOSTILE: dict[str, Callable[..., torch.Tensor]] = {
    "doubling": doubling,
    "outer": lambda x: (torch.arange(2**18)[:, None] * torch.arange(2**18)[None]).sum() + x,
    "matmul": lambda x: (torch.ones(2**18, 1) @ torch.ones(1, 2**18)).sum() + x,
    "repeat": lambda x: torch.ones(2**14).repeat(2**14).repeat(2**10).sum() + x,
    "expand": lambda x: torch.ones(2**18).expand(2**20, -1).clone().sum() + x,
    "reshape": lambda x: torch.ones(2**18).expand(2**20, -1).reshape(-1).sum() + x,
    "pad": lambda x: torch.nn.functional.pad(torch.ones(2**18)[:, None], (0, 2**18)).sum() + x,
    "many": lambda x: torch.stack([torch.full((2**26,), float(i)) for i in range(64)]).sum() + x,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_small_file_that_asks_for_hundreds_of_gigabytes_is_refused_and_takes_nothing(
    name: str, tmp_path: Path
) -> None:
    document, program = opened(tmp_path, HOSTILE[name])
    assert (tmp_path / "m.pt2").stat().st_size < 400_000
    began = time.process_time()
    with pytest.raises(FatalError) as refused:
        check(document, program)
    assert time.process_time() - began < 2
    assert (refused.value.condition, refused.value.reason) == ("Accepted", "WillNotFit")
    assert refused.value.field == "spec.template.resources.limits.memory"
    assert "the container's memory limit is 16.0 GiB" in refused.value.message


def test_a_size_beyond_all_counting_is_refused(tmp_path: Path) -> None:
    document, program = opened(tmp_path, linear)
    v = [{"v": name} for name in ("i0", *(f"n{i}" for i in range(70)))]
    document["nodes"] = [
        {"op": "aten.cat.default", "args": [[v[i], v[i]], 1], "kwargs": {}, "out": f"n{i}"} for i in range(70)
    ]
    document["outputs"][0]["value"] = "n69"
    with pytest.raises(ProgramError) as refused:
        check(document, program)
    assert (refused.value.condition, refused.value.reason) == ("Accepted", "WillNotFit")
    assert "more bytes than can be counted" in refused.value.message


def test_programs_whose_large_values_are_dropped_in_time_fit(tmp_path: Path) -> None:
    def one_by_one(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for i in range(100):
            total = total + torch.full((2**26,), float(i)).sum()
        return x + total

    check(*opened(tmp_path, one_by_one))


def test_the_largest_bucket_decides_and_not_the_end_of_the_declared_range(tmp_path: Path) -> None:
    document, program = opened(tmp_path, lambda x: (x @ x.T) @ x)
    check(document, program, batch=[1, 1024])  # the range goes to 2**20, which would be 4 TiB
    with pytest.raises(FatalError) as refused:
        check(document, program, batch=[1, 2**20])
    assert refused.value.field == "spec.batching.shapeBuckets"
    assert "bucket batch=1048576" in refused.value.message
    assert "4.0 TiB: [1048576, 1048576] of aten.matmul.default" in refused.value.message
    assert "raise spec.template.resources.limits.memory" in refused.value.message


def test_weights_count_and_are_not_touched(tmp_path: Path) -> None:
    document, program = opened(tmp_path, linear)
    (tmp_path / repack.WEIGHTS).unlink()  # nobody opens it any more
    with pytest.raises(FatalError, match="weights 272 bytes"):
        check(document, program, Room((300 << 20) + 200, "the container's memory limit"))
    check(document, program, Room((300 << 20) + 16384, "the container's memory limit"))


def test_what_depends_on_data_is_not_checked_and_the_rest_is(tmp_path: Path) -> None:
    def some(x: torch.Tensor) -> Any:
        n = x.sum().to(torch.int64).item()
        torch._check(n > 2)
        torch._check(n < 100)
        return torch.zeros(n) + 1, x * 2

    document, program = opened(tmp_path, some)
    gate = ShapeGate(document, program)
    gate.measure(dict.fromkeys(program.dimensions, 4))
    assert {"aten.item.default", "aten.zeros.default"} <= gate.unknown.keys()
    document["outputs"][1]["shape"][1] = 3
    with pytest.raises(ProgramError, match=r"as float32\[512, 3\]"):
        check(document, reopened(tmp_path, document))


def test_both_branches_of_a_condition_are_measured(tmp_path: Path) -> None:
    def branches(x: torch.Tensor) -> Any:
        def small(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def large(x: torch.Tensor) -> torch.Tensor:
            return (torch.ones(2**18, 1) @ torch.ones(1, 2**18)).sum() + x

        return torch.cond(x.sum() > 0, small, large, (x,))

    document, program = opened(tmp_path, branches)
    with pytest.raises(FatalError, match=r"256\.0 GiB: \[262144, 262144\]"):
        check(document, program)


def test_an_operator_that_would_answer_with_a_million_tensors_is_refused_before_it_does(tmp_path: Path) -> None:
    document, program = opened(tmp_path, lambda x: x.expand(3, *x.shape).unbind(0)[1])
    unbind = next(n for n in document["nodes"] if n["op"] == "aten.unbind.int")
    expand = next(n for n in document["nodes"] if n["op"] == "aten.expand.default")
    expand["args"][1][0] = 2**40
    began = time.process_time()
    with pytest.raises(ProgramError, match=rf"{2**40} tensors where the program has {len(unbind['out'])}|answers with"):
        check(document, program)
    assert time.process_time() - began < 1


def test_the_combinations_that_no_other_covers_are_measured_and_the_smallest() -> None:
    def sizes(*pairs: tuple[int, int]) -> list[dict[str, int]]:
        return [{"batch": b, "sequence": s} for b, s in pairs]

    square = sizes((8, 64), (8, 16), (1, 64), (1, 16))
    assert worth_measuring(square) == sizes((8, 64), (1, 16))
    assert worth_measuring(square[1:]) == sizes((8, 16), (1, 64), (1, 16))
    assert worth_measuring([{}]) == [{}]


def test_a_program_of_2000_nodes_is_measured_in_a_second(tmp_path: Path) -> None:
    document, program = opened(tmp_path, linear)
    v = [{"v": name} for name in ("i0", *(f"n{i}" for i in range(2000)))]
    nodes = [{"op": "aten.add.Tensor", "args": [v[i], v[0]], "kwargs": {}, "out": f"n{i}"} for i in range(2000)]
    document |= {"nodes": nodes}
    document["outputs"][0] |= {"value": "n1999"}
    document["outputs"][0]["shape"][1] = 16
    began = time.process_time()
    gate = ShapeGate(document, program)
    gate._compare = lambda *_: None  # type: ignore[method-assign]  # it declares four columns
    needs = [gate.measure({"batch": 32}), gate.measure({"batch": 1})]
    assert time.process_time() - began < 1
    assert needs[0].peak == 32 * 16 * 4 * 3  # x, one sum, and the next


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (16 << 30, "16.0 GiB"), (2**70, "1024.0 EiB")],
)
def test_sizes_are_readable(size: int, words: str) -> None:
    assert readable(size) == words
