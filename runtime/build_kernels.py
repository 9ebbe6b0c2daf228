"""Compiles `headway_runtime/kernels/native` into the library beside it: a build hook of the wheel, of editable
installations too, and a program (`python runtime/build_kernels.py`) for a tree whose sources have changed.

The compiler is Clang as the wheel `ziglang` brings it, so that a machine needs no other. One library holds the code for
several processors and chooses when it is loaded. It is linked with no C library: the process that loads it has one.
The same sources give the same bytes, and a library that says it was built from these sources is left alone.
`HATCH_BUILD_NO_HOOKS=true` skips the hook; without a library the runtime computes with its reference, slowly.
"""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = Path(__file__).resolve().parent / "headway_runtime" / "kernels"
SOURCES = KERNELS / "native"
LIBRARY = KERNELS / "libheadway_kernels.so"
FLAGS = (
    *("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-sanitize=undefined"),
    *(
        "-fno-stack-protector",
        "-fomit-frame-pointer",
        "-g0",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-Wall",
        "-Wextra",
        "-Werror",
    ),
)
BASE = ("library.cc", "pool.cc")  # compiled once; everything else for each level


@dataclass(frozen=True, slots=True)
class Level:
    """Code for one kind of processor: Clang's name for that, and the floats of its vectors."""

    name: str
    cpu: str
    lanes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What a library is built for. The first level is what all other code may use as well."""

    target: str
    levels: tuple[Level, ...]


_AVX512 = "x86_64_v4+avx512vnni-prefer_256_bit"
MACHINES = {
    "x86_64": Machine(
        "x86_64-linux-gnu.2.17",
        (
            Level("avx2", "x86_64_v3", 8),
            Level("avx512", _AVX512, 16),
            Level("avx512_bf16", f"{_AVX512}+avx512bf16", 16),
        ),
    ),
    "aarch64": Machine("aarch64-linux-gnu.2.17", (Level("neon", "generic", 4),)),
}


class BuildError(Exception):
    """The compiler's own words, or why there is none."""


def build(to: Path = LIBRARY, machine: str | None = None) -> bool:
    """Write the library; False when it is there already. Raises BuildError."""
    machine = machine or platform.machine()
    key = key_of(machine)
    if to.exists() and f"headway-kernels-key:{key}".encode() in to.read_bytes():
        return False
    chosen = MACHINES[machine]
    with tempfile.TemporaryDirectory(prefix="headway-kernels-") as folder:
        work = Path(folder)
        commands = [_compile(work, chosen, source, level, key) for source, level in _units(chosen)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as several:
            list(several.map(lambda command: _zig(command, work), commands))
        linked = work / "library.so"
        objects = sorted(str(path) for path in work.glob("*.o"))
        _zig(["ld.lld", "-shared", "-z", "relro", "-z", "now", "-z", "noexecstack", "-o", str(linked), *objects], work)
        part = to.with_name(f"{to.name}.{os.getpid()}")
        part.write_bytes(linked.read_bytes())
        part.replace(to)  # a process that has the old one loaded keeps it
    return True


def key_of(machine: str) -> str:
    """Hash of everything that decides what the library holds."""
    key = hashlib.sha256(f"{machine} {_compiler()}".encode())
    for path in (Path(__file__), *sorted(SOURCES.iterdir())):
        key.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return key.hexdigest()


def _compiler() -> str:
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        raise BuildError("the compiler is missing: pip install ziglang") from None


def _units(machine: Machine) -> list[tuple[str, Level]]:
    others = sorted(path.name for path in SOURCES.glob("*.cc") if path.name not in BASE)
    base = [(source, machine.levels[0]) for source in BASE]
    return base + [(source, level) for level in machine.levels for source in others]


def _compile(work: Path, machine: Machine, source: str, level: Level, key: str) -> list[str]:
    defined = (f"-DLEVEL={level.name}", f"-DLANES={level.lanes}", f'-DBUILD_KEY="{key}"')
    output = str(work / f"{level.name}-{source}.o")
    return ["cc", "-target", machine.target, f"-mcpu={level.cpu}", *FLAGS, *defined, "-c", source, "-o", output]


def _zig(command: list[str], work: Path) -> None:
    caches = {name: str(work / "cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *command],
        cwd=SOURCES,
        env=os.environ | caches,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it packs a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library into the tree and into the wheel, which then is for this kind of machine."""
        machine = platform.machine()
        if sys.platform != "linux" or machine not in MACHINES:
            self.app.display_warning(f"no native kernels for {sys.platform} on {machine}: the runtime will be slow")
            return
        build()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"
        build_data["artifacts"].append(str(LIBRARY.relative_to(self.root)))


if __name__ == "__main__":
    print(LIBRARY, "built" if build() else "is up to date")
