"""Honest programs are accepted and give the same bits as torch's own loader; what is not supported is refused for a
stated rule.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import inspection, repack
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program import Program, ShapeError, load_program

from tests.hostile import zoo

Exported = Callable[[str], Path]


def prepared(source: Path, target: Path) -> Program:
    target.mkdir(exist_ok=True)
    repack.repack(inspection.inspect(str(source)), source, target)
    return load_program(target, dimension_names={}, pack=False)  # packed weights round otherwise


def oracle(path: Path) -> Any:
    """torch's own loader: code execution on a stranger's file, an oracle on ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(path).module()


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def with_batch(value: Any, size: int | None) -> Any:
    """The same inputs with another first axis."""

    def resize(leaf: Any) -> Any:
        if size is None or not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.cat([leaf] * size)[:size]

    return torch.utils._pytree.tree_map(resize, value)


def copied(value: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)


@pytest.mark.parametrize("name", sorted(zoo.PROGRAMS))
def test_an_honest_program_gives_the_same_bits_as_torch(name: str, exported: Exported, tmp_path: Path) -> None:
    case = zoo.PROGRAMS[name]
    program = prepared(exported(name), tmp_path / "prepared")
    loaded = oracle(exported(name))
    for size in (None, *case.batches):
        if "buffer" in (program.not_batchable or ""):  # torch's keeps its state from one call to the next
            loaded = oracle(exported(name))
        args = with_batch(case.args, size)
        inputs = tensors((copied(args), dict(case.kwargs)))
        sizes = program.bind([tuple(i.shape) for i in inputs])
        assert program.check(sizes) is None
        before = copied(inputs)
        got = program.run(inputs)
        assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True)), "an input was changed"
        with torch.no_grad():
            expected = tensors(loaded(*copied(args), **case.kwargs))
        assert len(got) >= len(expected)  # sizes as results are tensors here
        assert all(mine.dtype == torch.bfloat16 or mine.numpy().shape == mine.shape for mine in got), "not to be read"
        for mine, theirs in zip(got, expected, strict=False):
            assert torch.equal(
                mine.isnan() if mine.is_floating_point() else mine,
                theirs.isnan() if theirs.is_floating_point() else theirs,
            )
            assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())


def test_guards_on_collected_arguments_are_kept(tmp_path: Path) -> None:
    zoo.COLLECTED.export(tmp_path / "collected.pt2")
    program = prepared(tmp_path / "collected.pt2", tmp_path / "prepared")
    assert [i.name for i in program.inputs] == ["x", "xs_0", "xs_1", "scale"]
    assert program.batch is not None
    inputs = [torch.full((5, 3), value) for value in (1.0, 2.0, 3.0, 4.0)]
    assert program.check(program.bind([i.shape for i in inputs])) is None
    assert program.run(inputs)[0].tolist() == [[24.0] * 3] * 5
    with pytest.raises(ShapeError):
        program.bind([(5, 3), (5, 3), (5, 3), (4, 3)])


@pytest.mark.parametrize("name", sorted(zoo.REFUSED))
def test_a_program_that_is_not_supported_is_refused_for_a_stated_rule(name: str, exported: Exported) -> None:
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(exported(name)))
    assert refused.value.rule == zoo.REFUSED[name][1], str(refused.value)


def test_a_program_with_state_answers_each_run_alike(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("keeps_state"), tmp_path / "prepared")
    first = program.run([torch.ones(1, 1, 8), torch.tensor([3])])[0]
    program.run([torch.full((1, 1, 8), 9.0), torch.tensor([5])])
    assert torch.equal(program.run([torch.ones(1, 1, 8), torch.tensor([3])])[0], first)
    assert program.batch is None
    assert "cache" in (program.not_batchable or "")


def test_a_branch_taken_at_export_is_kept_as_a_guard(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("branch"), tmp_path / "prepared")
    rows, columns = program.dimensions
    assert program.check({rows: 4, columns: 6}) is None
    violated = program.check({rows: 2, columns: 3})  # eager would multiply by 10 here, the program by 2
    assert violated is not None
    assert "> 12" in violated


def test_a_view_that_needs_a_divisible_size_refuses_others(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("view8"), tmp_path / "prepared")
    rows, columns = program.dimensions
    assert program.check({rows: 3, columns: 24}) is None
    assert program.check({rows: 3, columns: 20}) is not None


def test_the_same_program_gives_the_same_bytes(exported: Exported, tmp_path: Path) -> None:
    for target in ("a", "b"):
        prepared(exported("decoder"), tmp_path / target)
    for file in (repack.program_file(Path(), "model"), Path(repack.WEIGHTS)):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_tied_weights_are_stored_once(exported: Exported, tmp_path: Path) -> None:
    found = inspection.inspect(str(exported("decoder")))
    sources = [copy.name for copy in found.copies]
    assert len(sources) == len(set(sources))
