"""Programs of the versions of torch that are supported, in files that those versions wrote; and what others mean."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import inspection
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import operators

from tests.hostile import archives
from tests.hostile.test_honest_zoo import copied, oracle, prepared, tensors, with_batch

FIXTURES = Path(__file__).parent / "fixtures"
FILES = sorted(str(p.relative_to(FIXTURES)) for p in FIXTURES.glob("torch_*/*.pt2") if p.stem != "cholesky")


@pytest.fixture(scope="module")
def examples() -> dict[str, tuple[torch.Tensor, ...]]:
    """Example inputs by program, of the script that wrote the files."""
    spec = importlib.util.spec_from_file_location("exporting", FIXTURES / "export_with_this_torch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: args for name, (_, args, _) in module.PROGRAMS.items()}


def test_there_are_files_of_both_older_versions() -> None:
    assert {name.split("/")[0] for name in FILES} == {"torch_2_13", "torch_2_14"}
    assert len(FILES) == 10


@pytest.mark.parametrize("name", FILES)
def test_a_program_of_an_older_torch_gives_the_bits_that_this_torch_gives(
    name: str, examples: dict[str, Any], tmp_path: Path
) -> None:
    program = prepared(FIXTURES / name, tmp_path / "prepared")
    assert program.torch_version.startswith(name.split("/")[0].removeprefix("torch_").replace("_", "."))
    for size in (None, 5):
        args = with_batch(examples[Path(name).stem], size)
        inputs = tensors(copied(args))
        assert program.check(program.bind([tuple(i.shape) for i in inputs])) is None
        with torch.no_grad():
            expected = tensors(oracle(FIXTURES / name)(*copied(args)))
        for mine, theirs in zip(program.run(inputs), expected, strict=True):
            assert torch.equal(mine, theirs)


def test_the_guard_of_an_older_torch_is_kept(tmp_path: Path) -> None:
    program = prepared(FIXTURES / "torch_2_13/branch.pt2", tmp_path / "prepared")
    rows, columns = program.dimensions
    assert program.check({rows: 4, columns: 4}) is None
    assert program.check({rows: 3, columns: 4}) is not None
    assert program.check({rows: 4, columns: 5}) is not None


def test_an_operator_that_only_the_older_torch_has_is_a_matter_of_versions() -> None:
    both = r"aten\.cholesky\.default of torch 2\.13; this Headway runs torch 2\.15"
    with pytest.raises(Refusal, match=both) as refused:
        inspection.inspect(str(FIXTURES / "torch_2_13/cholesky.pt2"))
    assert (refused.value.reason, refused.value.rule) == ("IncompatibleVersion", "operator.version")


def test_the_operators_that_are_gone_are_gone() -> None:
    assert not operators.GONE.keys() & operators.names()
    for name in operators.GONE:
        assert not hasattr(torch.ops.aten, name.split(".")[1])


def altered(entries: archives.Entries, path: Path, **changes: Any) -> str:
    return str(archives.write(path, archives.altered(entries, lambda document: {**document, **changes})))


@pytest.mark.parametrize("version", ["2.12.1", "2.16.0", "2.16.0.dev20261101+cpu", "3.0.0", "1.13.1"])
def test_another_torch_is_refused_naming_both(version: str, honest: archives.Entries, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        inspection.inspect(altered(honest, tmp_path / "a.pt2", torch_version=version))
    assert (refused.value.reason, refused.value.rule) == ("IncompatibleVersion", "schema.torch")
    assert f"torch {version}, this Headway runs torch 2.15" in str(refused.value)


@pytest.mark.parametrize(("major", "minor"), [(7, 0), (8, 21), (8, -1), (9, 0), (8, True), ("8", 0), (8, None)])
def test_an_unknown_schema_is_refused_before_anything_is_read(
    major: Any, minor: Any, honest: archives.Entries, tmp_path: Path
) -> None:
    changed = altered(honest, tmp_path / "a.pt2", schema_version={"major": major, "minor": minor}, later="a new field")
    with pytest.raises(Refusal) as refused:
        inspection.inspect(changed)
    assert (refused.value.reason, refused.value.rule) == ("IncompatibleVersion", "schema.version")
    assert f"schema {major}.{minor}, this Headway reads 8.20" in str(refused.value)


def test_an_argument_that_torch_would_drop_is_refused(honest: archives.Entries, tmp_path: Path) -> None:
    """torch's loader ignores an argument that the operator's schema does not have: two readers, two programs."""

    def change(document: Any) -> None:
        node = document["graph_module"]["graph"]["nodes"][1]
        node["inputs"].append({"name": "alpha", "arg": {"as_int": 2}, "kind": 2})

    path = archives.write(tmp_path / "a.pt2", archives.altered(honest, change))
    with pytest.raises(Refusal, match="has no argument 'alpha'") as refused:
        inspection.inspect(str(path))
    assert refused.value.rule == "operator.arguments"
    assert isinstance(oracle(path)(torch.ones(4, 16)), torch.Tensor)
