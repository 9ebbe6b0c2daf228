"""Joining requests of different sizes, and giving each back what it would have got alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from headway_runtime.batching.assembly import Assembly, Sizes
from headway_runtime.batching.layout import Layout, Tensors
from headway_runtime.program import Program, load_program
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim

from tests.unit.small_models import WORDS, Encoder, Scaled, export, prepare


@dataclass(frozen=True)
class Request:
    inputs: Tensors
    sizes: Sizes
    rows: int


class Widened(torch.nn.Module):
    """x [batch, 2*half] -> y [batch, half + 1], first [batch]: axes that are computed from the padded one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = x.unflatten(1, (-1, 2)).sum(-1)
        return torch.cat([pairs, pairs[:, :1]], 1), x[:, 0]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("layout")
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


@pytest.fixture(scope="module")
def widened(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("widened")
    half = Dim("half", min=1, max=16)
    with torch.no_grad():
        program = torch.export.export(
            Widened(), (torch.ones(2, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=8), 1: 2 * half},)
        )
    torch.export.save(program, folder / "m.pt2")
    return load_program(prepare(folder / "m.pt2", folder / "m"), dimension_names={"length": "x.1"})


def padding(program: Program, *fills: float | None) -> Layout:
    layout = Layout.of(program)
    return replace(layout, padded=tuple(n for n in program.dimensions if n != layout.batch), fills=fills)


def request(program: Program, *inputs: torch.Tensor) -> Request:
    sizes = program.bind([t.shape for t in inputs])
    return Request(inputs, sizes, sizes["batch"])


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))


def together(program: Program, layout: Layout, requests: Sequence[Request], **how: object) -> list[Tensors]:
    assembly = Assembly(program, layout, **how)  # type: ignore[arg-type]
    joint = assembly.joint(requests)
    assert assembly.refused(joint) is None
    inputs = assembly.join(requests, joint)
    assert [tuple(t.shape) for t in inputs] == list(program.input_shapes(joint.sizes))
    return assembly.part(program.run(inputs), requests, joint)


SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.booleans())
def test_requests_of_all_lengths_share_a_run_and_get_what_they_would_alone(
    encoder: Program, shapes: list[tuple[int, int]], static: bool
) -> None:
    layout = padding(encoder, 0, 0)
    requests = [
        request(encoder, ids(rows, length, seed), torch.ones(rows, length, dtype=torch.int64))
        for seed, (rows, length) in enumerate(shapes)
    ]
    how = {"bucket": lambda sizes: {"batch": 40, "sequence": 16}} if static else {}
    for found, alone in zip(together(encoder, layout, requests, **how), requests, strict=True):
        for mine, expected in zip(found, encoder.run(alone.inputs), strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


def test_a_run_is_as_long_as_its_longest_request_and_holds_the_pad_value_of_each_input(encoder: Program) -> None:
    assembly = Assembly(encoder, padding(encoder, 7, 0))
    requests = [request(encoder, ids(1, n), torch.ones(1, n, dtype=torch.int64)) for n in (2, 5)]
    joint = assembly.joint(requests)
    assert joint.sizes == {"batch": 2, "sequence": 5}
    assert (joint.real, joint.run) == (7, 10)
    words, mask = assembly.join(requests, joint)
    assert words[0].tolist() == [*requests[0].inputs[0][0].tolist(), 7, 7, 7]
    assert mask.tolist() == [[1, 1, 0, 0, 0], [1] * 5]


def test_rows_that_only_fill_a_batch_up_repeat_the_last_real_one_with_its_padding(encoder: Program) -> None:
    layout = replace(padding(encoder, 9, 0), fewest=4)
    assembly = Assembly(encoder, layout)
    requests = [request(encoder, ids(1, n), torch.ones(1, n, dtype=torch.int64)) for n in (3, 1)]
    joint = assembly.joint(requests)
    assert joint.sizes == {"batch": 4, "sequence": 3}
    words, mask = assembly.join(requests, joint)
    assert words[1:].tolist() == [[requests[1].inputs[0][0, 0].item(), 9, 9]] * 3
    assert mask[1:].tolist() == [[1, 0, 0]] * 3
    assert [t.shape for t in assembly.part(encoder.run([words, mask]), requests, joint)[1]] == [(1, 8), (1, 1, 8)]


def test_axes_that_are_computed_from_a_padded_one_are_cut_to_what_the_request_alone_would_have(
    widened: Program,
) -> None:
    layout = padding(widened, 0.0)
    requests = [request(widened, torch.randn(rows, length)) for rows, length in ((1, 4), (2, 10))]
    (first, _), (second, last) = together(widened, layout, requests)
    assert (first.shape, second.shape, last.shape) == ((1, 3), (2, 6), (2,))
    torch.testing.assert_close(second, widened.run(requests[1].inputs)[0])
    torch.testing.assert_close(first[:, :2], widened.run(requests[0].inputs)[0][:, :2])


def test_a_request_alone_is_not_copied(encoder: Program) -> None:
    assembly = Assembly(encoder, padding(encoder, 0, 0))
    alone = request(encoder, ids(3, 4), torch.ones(3, 4, dtype=torch.int64))
    joined = assembly.join([alone], assembly.joint([alone]))
    assert [a is b for a, b in zip(joined, alone.inputs, strict=True)] == [True, True]


def test_sizes_of_padded_dimensions_keep_nobody_apart_and_are_told_to_the_policy(encoder: Program) -> None:
    exact, padded = Layout.of(encoder), padding(encoder, 0, 0)
    sizes = [{"batch": 1, "sequence": n} for n in (2, 3)]
    assert exact.group_key(sizes[0], ()) != exact.group_key(sizes[1], ())
    assert padded.group_key(sizes[0], ()) == padded.group_key(sizes[1], ())
    assert [padded.padded_sizes(s) for s in sizes] == [(2,), (3,)]
    assert exact.padded_sizes(sizes[0]) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_without_rows_keep_requests_apart_by_content_of_any_type(tmp_path: Path, dtype: torch.dtype) -> None:
    layout = Layout.of(load_program(prepare(export(Scaled, tmp_path / "s.pt2"), tmp_path / "s"), dimension_names={}))
    row = torch.ones(1, 3, dtype=dtype)
    keys = [layout.group_key({"batch": 1}, (row, torch.full((3,), f, dtype=dtype))) for f in (2.0, 3.0, 2.0)]
    assert keys[0] == keys[2] != keys[1]


@given(st.integers(1, 50), st.integers(1, 9))
def test_parts_of_a_request_are_even_and_come_together_again(rows: int, most: int) -> None:
    layout = Layout("batch", None, (0, None), (1,))
    whole, shared = torch.arange(rows * 2).reshape(rows, 2), torch.ones(3)
    parts = layout.split((whole, shared), rows, most)
    counts = [count for count, _ in parts]
    assert sum(counts) == rows
    assert max(counts) <= most
    assert max(counts) - min(counts) <= 1
    assert all(inputs[1] is shared for _, inputs in parts)
    assert torch.equal(layout.rejoin([(inputs[0].T,) for _, inputs in parts])[0], whole.T)


def test_another_number_of_rows_than_were_put_in_is_an_error(encoder: Program) -> None:
    layout = Layout.of(encoder)
    with pytest.raises(ValueError, match="output 0 has 3 rows on axis 0 where 2 were put in"):
        layout.part([torch.ones(3, 8), torch.ones(3, 1, 8)], [1, 1])
