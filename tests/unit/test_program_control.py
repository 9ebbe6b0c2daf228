"""Loops, branches and autocast of a program, by themselves."""

import threading
from typing import Any

import pytest
import torch
from headway_runtime.program.control import MAX_STEPS, Autocast, Cond, LoopError, Map, Scan
from torch._higher_order_ops.map import map_dense
from torch._higher_order_ops.scan import generic_scan

X = torch.arange(12.0).reshape(4, 3)


def step(carry: torch.Tensor, row: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    carry = carry * 0.9 + row.sin()
    return carry, carry.sum() * scale


def test_a_scan_gives_the_bits_of_torch_s() -> None:
    mine = Scan(step)([torch.zeros(3)], [X], [2.0])
    theirs = generic_scan(step, [torch.zeros(3)], [X], additional_inputs=(2.0,))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_scan_over_no_rows_gives_back_what_it_was_given() -> None:
    carry, rows = Scan(step)([torch.ones(3)], [X[:0]], [2.0])
    assert torch.equal(carry, torch.ones(3))
    assert rows.shape == (0,)


def test_a_map_gives_the_bits_of_torch_s() -> None:
    def body(row: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return row @ other, row.exp()

    mine = Map(body)([X], [torch.ones(3)])
    theirs = map_dense(body, [X], [torch.ones(3)])
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("xs", [[X, X[:2]], [torch.tensor(1.0)], []])
def test_loops_over_tensors_that_do_not_fit_are_refused(xs: list[torch.Tensor]) -> None:
    with pytest.raises(LoopError):
        Map(lambda *rows: rows)(xs, [])
    with pytest.raises(LoopError):
        Scan(lambda *rows: rows)([], xs, [])


def test_a_map_over_no_rows_is_refused() -> None:
    with pytest.raises(LoopError):
        Map(lambda row: (row,))([X[:0]], [])


def test_what_a_scan_carries_keeps_its_shape_so_that_memory_is_known_before() -> None:
    with pytest.raises(LoopError, match="changes its shape"):
        Scan(lambda carry, row: (torch.cat([carry, carry]), row))([X[0]], [X], [])
    with pytest.raises(LoopError, match="changes its shape or type"):
        Scan(lambda carry, row: (carry.double(), row))([X[0]], [X], [])


def test_a_loop_is_bounded() -> None:
    long = torch.zeros(1).expand(MAX_STEPS + 1)
    with pytest.raises(LoopError, match="at most"):
        Map(lambda row: (row,))([long], [])


def test_loops_inside_of_loops_are_bounded_together() -> None:
    count = 0

    def inner(row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal count
        count += 1
        return (row,)

    wide = torch.zeros(1).expand(1 << 11)

    def outer(row: torch.Tensor) -> tuple[Any, ...]:
        return Map(inner)([wide], [])

    with pytest.raises(LoopError, match="inside of"):
        Map(outer)([wide], [])
    assert count == 0
    assert Map(inner)([wide], [])[0].shape == (1 << 11,), "the bound is free again after an error"


def test_the_bound_of_one_thread_is_not_another_s() -> None:
    found: list[int] = []

    def outer(row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not found:  # once is enough: the bound of all steps holds from the first on
            thread = threading.Thread(
                target=lambda: found.append(len(Map(lambda x: (x,))([torch.zeros(1 << 12)], [])[0]))
            )
            thread.start()
            thread.join()
        return (row,)

    Map(outer)([torch.zeros(1).expand(1 << 9)], [])
    assert found == [1 << 12]


def test_a_branch_is_chosen_by_one_element() -> None:
    choose = Cond(lambda x: (x + 1,), lambda x: (x - 1,))
    assert choose(torch.tensor(True), 1) == (2,)
    assert choose(False, 1) == (0,)
    with pytest.raises(RuntimeError):
        choose(torch.tensor([True, False]), 1)


def test_autocast_ends_with_its_graph() -> None:
    cast = Autocast(lambda x: (x @ x,))
    square = torch.ones(3, 3)
    options: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.bfloat16}
    assert cast(square, enabled=True, **options)[0].dtype == torch.bfloat16
    assert cast(square, enabled=False, **options)[0].dtype == torch.float32
    assert (square @ square).dtype == torch.float32
