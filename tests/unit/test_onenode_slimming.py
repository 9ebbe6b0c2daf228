"""The libraries that stand for NVIDIA's in an image for CPUs, and what an image installs."""

import _ctypes
import ctypes
import subprocess
import sys
from pathlib import Path

import cpu_only
import elf
import pytest
import requirements


def test_the_loader_finds_every_symbol_of_a_stub_in_its_version(tmp_path: Path) -> None:
    path = tmp_path / "libfake.so.1"
    path.write_bytes(elf.stub("libfake.so.1", {"one": "FAKE_1", "two": "FAKE_2", "three": "FAKE_1"}))
    library = ctypes.CDLL(str(path))
    dlvsym = ctypes.CDLL(None).dlvsym
    dlvsym.restype, dlvsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    assert dlvsym(library._handle, b"one", b"FAKE_1")
    assert dlvsym(library._handle, b"two", b"FAKE_2")
    assert not dlvsym(library._handle, b"two", b"FAKE_1")
    assert _ctypes.dlsym(library._handle, "three")
    with pytest.raises(AttributeError):
        _ = library.four


def test_calling_a_stub_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "libfake.so.1"
    path.write_bytes(elf.stub("libfake.so.1", {"one": ""}))
    code = f"import ctypes; ctypes.CDLL({str(path)!r}).one()"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -4  # SIGILL


def test_a_real_library_is_read() -> None:
    library = elf.read(Path(_ctypes.__file__))
    assert "libc.so.6" in library.needed
    assert "PyInit__ctypes" in library.defined
    assert any(symbol.library == "libc.so.6" and symbol.version.startswith("GLIBC_") for symbol in library.undefined)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a library, but long enough to be read")
    with pytest.raises(ValueError, match="not a 64-bit"):
        elf.read(tmp_path / "text")


def test_only_libraries_that_are_not_there_get_stubs_of_what_is_asked_of_them() -> None:
    ask = elf.Asked
    torch = elf.Library(
        needed=frozenset({"libhere.so", "libcublas.so.13", "libnccl.so.2", "libc.so.6"}),
        defined=frozenset({"own"}),
        undefined=frozenset(
            {
                ask("mul", "libcublas.so.13", "libcublas.so.13"),
                ask("ncclInit"),
                ask("own"),
                ask("malloc", "libc.so.6", "G"),
            }
        ),
    )
    here = elf.Library(frozenset(), frozenset({"hereMul"}), frozenset())
    assert cpu_only.missing({"libtorch.so": torch}, {"libhere.so": here}) == {
        "libcublas.so.13": {"mul": "libcublas.so.13"},
        "libnccl.so.2": {"ncclInit": ""},
    }


def test_an_extra_that_names_another_extra_gets_its_requirements() -> None:
    project: dict[str, object] = {
        "name": "headway",
        "dependencies": ["pydantic"],
        "optional-dependencies": {
            "prepare": ["obstore"],
            "runtime": ["headway[prepare]", "torch"],
            "operator": ["kopf"],
        },
    }
    assert requirements.of_extra(project, "runtime") == ["obstore", "pydantic", "torch"]
    with pytest.raises(KeyError):
        requirements.of_extra(project, "nothing")
