"""The parts of the build step that need no compiled code: targets, sizes to try, assumptions, comparing, and programs
that are refused with a reason.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from headway_runtime.cli import app
from headway_runtime.native import assumptions, compiler, lowering, processor, sizes, tracing, trial
from headway_runtime.native.build import build
from headway_runtime.native.errors import CompileError
from headway_runtime.prepare import repack
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.prepare.sizes import dimensions
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program import Program, load_program
from headway_runtime.program.load import read_document
from torch.export import Dim
from typer.testing import CliRunner

from tests.unit.small_models import Encoder, export

N = Dim("n", min=2, max=64)


class Truncating(torch.nn.Module):
    """Integer division that the machine checks by looking at the data."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.div(a, b, rounding_mode="trunc")


class Paired(torch.nn.Module):
    """x [n, 4] and y [2 n + 1, 4] -> sums [4]: a size that is derived from another."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(0) + y.sum(0)


class Folded(torch.nn.Module):
    """x [n, m] -> y [n, m], by rows of 8: m must be a multiple of 8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.view(x.shape[0], -1, 8)).reshape(x.shape)


class Picking(torch.nn.Module):
    """x [n, 5] and where [n, 3] -> y [n, 3], columns of x; and the same along the rows."""

    def forward(self, x: torch.Tensor, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.gather(-1, where), x.gather(0, where % 2)


class Branching(torch.nn.Module):
    """x [n, 3] -> x * 2 where it sums up to something positive, else x - 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return result


def load(folder: Path, module: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any) -> Path:
    """A prepared directory."""
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=shapes), folder / "model.pt2")
    return prepare(folder, folder / "model.pt2")


def prepare(folder: Path, artifact: Path) -> Path:
    directory = folder / "prepared"
    directory.mkdir()
    repack.repack(inspect_isolated(artifact), artifact, directory)
    return directory


def space_of(directory: Path) -> tuple[Program, sizes.Space]:
    program = load_program(directory, dimension_names={})
    named, _ = dimensions.of_document(read_document(directory)[1])
    return program, sizes.space(program, named)


def trace(directory: Path) -> tracing.Trace:
    _, space = space_of(directory)
    example = space.example()
    assert example is not None
    return tracing.trace(directory, read_document(directory)[1], space.named, example)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return prepare(tmp_path, export(Encoder, tmp_path / "encoder.pt2"))


def size(name: str) -> Any:
    return sympy.Symbol(name, positive=True, integer=True)


# the compiler and the processor


def test_without_a_compiler_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    source = export(Encoder, tmp_path / "encoder.pt2")
    done = CliRunner().invoke(app, ["compile", str(source)])
    assert done.exit_code == 1
    assert "no C++ compiler: no-such-compiler is not on PATH" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.pt2"]


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    source = export(Encoder, tmp_path / "encoder.pt2")
    before = source.read_bytes()
    done = CliRunner().invoke(app, ["compile", str(source), "-o", str(source)])
    assert done.exit_code == 1
    assert "give another --output" in done.output
    assert source.read_bytes() == before


def fake_compiler(folder: Path, macros: Mapping[str, str]) -> str:
    """Answers like `g++ -march=… -dM -E`; `macros` by march."""
    path = folder / "cxx"
    cases = "\n".join(
        f"*'-march={march} '*) printf '{''.join(f'#define __{name}__ 1{chr(92)}n' for name in names.split())}' ;;"
        for march, names in macros.items()
    )
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}\n*) echo unknown >&2; exit 1 ;;\nesac\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_target_needs_what_its_compiler_takes_for_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "features", lambda: frozenset({"pni", "avx2", "bmi1"}))
    found = compiler.target("x86-64-v3")
    cxx = fake_compiler(tmp_path, {"x86-64-v3": "SSE2 SSE3 BMI AVX2 OPTIMIZE", "x86-64": "SSE2"})
    assert compiler.needs(cxx, found) == ("avx2", "bmi1", "pni")
    monkeypatch.setattr(processor, "features", lambda: frozenset({"pni", "bmi1"}))
    with pytest.raises(CompileError, match=r"lacks avx2; compile where the code can run"):
        compiler.needs(cxx, found)
    with pytest.raises(CompileError, match=r"does not know -march=x86-64-v4: unknown"):
        compiler.needs(cxx, compiler.target("x86-64-v4"))


def test_an_unknown_target_is_refused_naming_those_there_are() -> None:
    with pytest.raises(CompileError, match=r"no target 'pentium'; there are native, x86-64-v3, x86-64-v4"):
        compiler.target("pentium")


def test_another_machine_cannot_run_a_library() -> None:
    assert processor.lacking((), machine="aarch64") == "it is for x86_64, and this machine is aarch64"
    assert processor.lacking(("avx2",), machine="x86_64", has=frozenset({"avx2"})) is None


def test_features_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 abm\nbugs\t: x\n")
    assert processor.features(tmp_path / "cpuinfo") == {"fpu", "avx2", "abm"}
    assert processor.features(tmp_path / "missing") == frozenset()


# sizes and assumptions


def test_the_ends_of_all_ranges_are_tried_and_an_example_has_no_two_sizes_alike(encoder: Path) -> None:
    _, space = space_of(encoder)
    ends = space.ends()
    assert ends[0] == {"batch": 1, "ids.1": 1}
    assert ends[-1] == {"batch": 64, "ids.1": 128}
    example = space.example()
    assert example is not None
    assert example["batch"] != example["ids.1"]
    assert min(example.values()) > 1


def test_sizes_obey_derived_axes(tmp_path: Path) -> None:
    directory = load(tmp_path, Paired(), (torch.ones(3, 4), torch.ones(7, 4)), ({0: N}, {0: 2 * N + 1}))
    program, space = space_of(directory)
    assert all(program.check(choice) is None for choice in space.combinations)
    assert program.input_shapes(space.ends()[-1]) == ((64, 4), (129, 4))


def test_what_lowering_assumed_is_tried_where_the_program_allows_it_and_else_kept(encoder: Path) -> None:
    _, space = space_of(encoder)
    symbols = {"s7": "s0", "s9": "s1"}
    found = assumptions.sort(
        [sympy.Ne(size("s9"), 3), sympy.true],
        [size("s7") < 16, size("s7") < 1000, sympy.Ne(size("s9"), 3)],
        symbols=symbols,
        own=[],
        space=space,
    )
    s0, s1 = ex.symbol("s0"), ex.symbol("s1")
    assert found.kept == (ex.call("ne", s1, ex.const(3)), ex.call("lt", s0, ex.const(1000)))
    ((condition, broken),) = found.broken
    assert condition == ex.call("lt", s0, ex.const(16))
    assert broken["batch"] >= 16


def test_what_the_program_assumes_itself_is_not_kept_twice(encoder: Path) -> None:
    own = ex.call("ne", ex.symbol("s1"), ex.const(3))
    _, space = space_of(encoder)
    found = assumptions.sort([sympy.Ne(size("s9"), 3)], [], symbols={"s9": "s1"}, own=[own], space=space)
    assert found.kept == ()


@pytest.mark.parametrize("condition", [size("u0") < 4, sympy.sin(size("s9")) < 1], ids=["data", "function"])
def test_an_assumption_that_no_pod_can_check_refuses_the_program(encoder: Path, condition: Any) -> None:
    _, space = space_of(encoder)
    with pytest.raises(CompileError, match="compiling assumes"):
        assumptions.sort([], [condition], symbols={"s9": "s1"}, own=[], space=space)


# tracing


def test_weights_are_inputs_of_the_trace_and_sizes_are_symbols(encoder: Path) -> None:
    traced = trace(encoder)
    assert set(traced.exported.graph_signature.inputs_to_buffers.values()) == {"w0", "w1", "w2"}
    assert set(traced.symbols.values()) == {"s0", "s1"}
    program, _ = space_of(encoder)
    inputs = [torch.ones(5, 9, dtype=torch.int64), torch.ones(5, 9, dtype=torch.int64)]
    for answer, wanted in zip(traced.exported.module()(*inputs), program.run(inputs), strict=True):
        assert torch.equal(answer, wanted)


def test_a_derived_size_is_traced_as_one(tmp_path: Path) -> None:
    directory = load(tmp_path, Paired(), (torch.ones(3, 4), torch.ones(7, 4)), ({0: N}, {0: 2 * N + 1}))
    traced = trace(directory)
    assert set(traced.symbols.values()) == {"s0"}
    (answer,) = traced.exported.module()(torch.ones(9, 4), torch.ones(19, 4))
    assert answer.tolist() == [28.0] * 4


def test_a_condition_on_one_size_alone_is_left_to_the_programs_own_guards(tmp_path: Path) -> None:
    directory = load(tmp_path, Folded(), (torch.ones(3, 16),), ({0: Dim.AUTO(min=1, max=64), 1: Dim.AUTO},))
    traced = trace(directory)
    assert set(traced.symbols.values()) == {"s0", "s1"}
    assert traced.narrowed == ()
    x = torch.randn(5, 40)
    assert torch.equal(traced.exported.module()(x)[0], Folded()(x))


def test_gathering_is_recorded_as_a_look_up_that_refuses_negative_indices(tmp_path: Path) -> None:
    example = (torch.randn(4, 5), torch.zeros(4, 3, dtype=torch.int64))
    traced = trace(load(tmp_path, Picking(), example, ({0: N}, {0: N})))
    assert "gather" not in traced.exported.graph_module.code
    module = traced.exported.module()
    x, where = torch.randn(7, 5), torch.randint(0, 5, (7, 3))
    for answer, wanted in zip(module(x, where), Picking()(x, where), strict=True):
        assert torch.equal(answer, wanted)
    for bad in (-1, 5):
        where[6, 2] = bad
        with pytest.raises(IndexError, match="out of bounds"):
            module(x, where)


def test_both_sides_of_a_branch_are_traced(tmp_path: Path) -> None:
    directory = load(tmp_path, Branching(), (torch.ones(4, 3),), ({0: N},))
    module = trace(directory).exported.module()
    for x in (torch.ones(3, 3), -torch.ones(5, 3)):
        assert torch.equal(module(x)[0], Branching()(x))


def test_a_program_whose_checks_look_at_the_data_is_refused_with_the_reason(tmp_path: Path) -> None:
    example = (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    directory = load(tmp_path, Truncating(), example, ({0: N}, {0: N}))
    with pytest.raises(CompileError, match="depends on the data: GuardOnDataDependent"):
        trace(directory)


# lowering


def test_a_check_inside_of_several_threads_is_found(tmp_path: Path) -> None:
    region = "#pragma omp parallel\n{\n"
    for text, ends in (
        (f'{region}TORCH_CHECK((0 <= tmp2) & (tmp2 < 50L), "index out of bounds")', True),
        (f'{region}AOTI_TORCH_CHECK(tmp2 < 50L, "index out of bounds")', True),
        (f"{region}out_ptr0[x0] = tmp1;", False),
        ('TORCH_CHECK(tmp2 < 50L, "index out of bounds")', False),
    ):
        (tmp_path / "model.kernel.cpp").write_text(text)
        assert lowering.ends_the_process(tmp_path) is ends, text


# comparing


class Doubled(torch.nn.Module):
    """x [n, 3] -> y [n, 3], once right and once not quite."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.factor, (x * self.factor).round().to(torch.int64)


def pair(folder: Path, factor: float) -> tuple[Program, Program]:
    programs = []
    for name, value in (("right", 2.0), ("other", factor)):
        (folder / name).mkdir()
        directory = load(folder / name, Doubled(value), (torch.ones(4, 3),), ({0: N},))
        programs.append(load_program(directory, dimension_names={}))
    return programs[0], programs[1]


def compare(right: Program, other: Program, **options: Any) -> trial.Trials:
    given: dict[str, Any] = {"sizes": [{"batch": 2}, {"batch": 64}], "samples": [], "tolerance": trial.Tolerance()}
    return trial.compare(right, other, **{**given, **options})


def test_answers_within_the_tolerance_agree_and_the_difference_is_told(tmp_path: Path) -> None:
    found = compare(*pair(tmp_path, 2.00001))
    assert found.count == 2
    assert 0 < found.largest < 1e-3


def test_answers_that_differ_refuse_the_package_naming_the_output_and_the_sizes(tmp_path: Path) -> None:
    programs = pair(tmp_path, 2.1)
    with pytest.raises(CompileError, match=r"answers otherwise than the program: .* at batch = 2 differs by"):
        compare(*programs)
    with pytest.raises(CompileError, match="differs by 1"):
        compare(*programs, tolerance=trial.Tolerance(rtol=1.0, atol=10.0))


def test_golden_samples_are_compared_as_well(tmp_path: Path) -> None:
    right, other = pair(tmp_path, 2.1)
    sample = {"inputs": [{"dtype": "float32", "shape": [2, 3], "data": "AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/"}]}
    assert compare(right, right, samples=[sample]).count == 3
    with pytest.raises(CompileError, match=r"at sample 0 differs by 0\.1"):
        compare(right, other, samples=[sample], sizes=[])


def test_nothing_compared_is_nothing_proven(tmp_path: Path) -> None:
    right, _ = pair(tmp_path, 2.0)
    with pytest.raises(CompileError, match="record golden samples"):
        compare(right, right, sizes=[])


def test_an_artifact_that_a_pod_would_refuse_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"not an archive")
    done = CliRunner().invoke(app, ["compile", str(tmp_path / "model.pt2")])
    assert done.exit_code == 1
    assert "not compiled (NotAnArchive)" in done.output
    with pytest.raises(CompileError, match="no target"):
        build(tmp_path / "model.pt2", tmp_path / "out.pt2", target="pentium")
