"""The native library as it is built: from these sources, for other machines, and with nothing that it does not say."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import elf
import pytest
import torch
from headway_api.types import Precision
from headway_runtime.kernels import library
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.kernels.linear import pack_with

from tests.unit.kernel_levels import error
from tests.unit.kernel_steps import Sequences, Shape

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "runtime"))
import build_kernels  # noqa: E402 - a program beside the package, as the build finds it

sys.path.pop(0)

MALLOC = {"malloc", "free", "memcpy", "memset"}
THREADS = {"pthread_create", "pthread_detach", "pthread_sigmask", "sigfillset", "syscall"}


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code that is for no processor in particular, as another architecture gets it, built for this one."""
    path = tmp_path_factory.mktemp("portable") / "library.so"
    with pytest.MonkeyPatch.context() as patch:
        machine = build_kernels.Machine("x86_64-linux-gnu.2.17", (build_kernels.Level("plain", "x86_64_v3", 4),))
        patch.setitem(build_kernels.MACHINES, platform.machine(), machine)
        assert build_kernels.build(path)
    return path


def test_the_library_in_this_tree_is_built_from_its_sources() -> None:
    key = build_kernels.key_of(platform.machine())
    assert f"headway-kernels-key:{key}".encode() in build_kernels.LIBRARY.read_bytes(), "run `make kernels`"
    assert not build_kernels.build()
    assert library.describe().startswith("native-")


def test_a_library_of_other_sources_is_not_called(tmp_path: Path) -> None:
    other, older = tmp_path / "other.so", tmp_path / "older.so"
    layout = b"".join(packed.size.to_bytes(8, "little") for packed in (library._ATTENTION, library._LINEAR))
    content = build_kernels.LIBRARY.read_bytes()
    assert content.count(layout) == 1
    other.write_bytes(content.replace(layout, layout[:8] + (library._LINEAR.size - 8).to_bytes(8, "little")))
    with pytest.raises(OSError, match="built from other sources"):
        library.Library(other)
    older.write_bytes(content.replace(b"headway_layout", b"headway_layouX"))
    with pytest.raises(OSError, match="run `make kernels`"):
        library.Library(older)


def test_the_code_without_intrinsics_answers_like_the_reference(portable: Path) -> None:
    plain = library.Library(portable, threads=2)
    assert plain.name == "plain"
    for shape in (Shape(head_dim=24, window=9), Shape(past=(300, 3), new=(1, 40), softcap=5.0)):
        sequences = Sequences(shape)
        cache = PagedCache(shape.geometry, blocks=shape.blocks, dtype=torch.bfloat16)
        cache.use(None)
        expected = sequences.run(cache)
        cache.use(plain)
        assert error(sequences.run(cache), expected) < 1e-4
    x, weight = torch.randn(9, 200), torch.randn(70, 200)
    for precision in Precision:
        native, torchs = (pack_with(each, weight, precision)(x) for each in (plain, None))
        assert error(native, torchs) < 2e-5


def test_it_asks_for_nothing_but_memory_and_threads(tmp_path: Path) -> None:
    for machine in build_kernels.MACHINES:
        path = tmp_path / machine
        if machine == platform.machine():
            shutil.copyfile(build_kernels.LIBRARY, path)
        else:
            assert build_kernels.build(path, machine)
        found = elf.read(path)
        assert {symbol.name for symbol in found.undefined} <= MALLOC | THREADS
        assert not found.needed
        assert all(name.startswith("headway_") for name in found.defined)


def test_another_source_another_compiler_or_another_machine_is_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build_kernels.key_of("x86_64")
    assert build_kernels.key_of("aarch64") != before
    shutil.copytree(build_kernels.SOURCES, tmp_path / "native")
    monkeypatch.setattr(build_kernels, "SOURCES", tmp_path / "native")
    assert build_kernels.key_of("x86_64") == before
    monkeypatch.setattr(build_kernels.importlib.metadata, "version", lambda _: "0.0")
    assert build_kernels.key_of("x86_64") != before
    monkeypatch.undo()
    monkeypatch.setattr(build_kernels, "SOURCES", tmp_path / "native")
    (tmp_path / "native/pool.cc").write_text("")
    assert build_kernels.key_of("x86_64") != before


def test_what_the_compiler_says_is_what_the_builder_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(build_kernels.SOURCES, tmp_path / "native")
    monkeypatch.setattr(build_kernels, "SOURCES", tmp_path / "native")
    (tmp_path / "native/pool.cc").write_text("int f() { return nonsense; }")
    with pytest.raises(build_kernels.BuildError, match="nonsense"):
        build_kernels.build(tmp_path / "library.so")
    assert not (tmp_path / "library.so").exists()


def test_without_a_library_the_reference_computes_and_one_line_says_so(tmp_path: Path) -> None:
    program = """
import torch, sys
from pathlib import Path
from headway_api.types import Precision
from headway_runtime import logs
from headway_runtime.kernels import library, linear
library.Library.__init__.__defaults__ = (Path(sys.argv[1]),)
logs.configure()
print(library.describe(), library.describe())
print(linear.pack(torch.eye(2), Precision.EXPORTED)(torch.ones(2)).tolist())
"""
    missing = str(tmp_path / "missing.so")
    done = subprocess.run([sys.executable, "-c", program, missing], capture_output=True, text=True, check=True)
    assert done.stdout == "reference reference\n[1.0, 1.0]\n"
    (line,) = done.stderr.splitlines()
    assert '"no_native_kernels"' in line
    assert missing in line
