"""Make an installed torch of the ordinary package index, a CUDA build, run on CPUs without NVIDIA's 3 GB of libraries.

Torch's own libraries are linked against cuBLAS, cuDNN, NCCL and others, but call none of them on a machine without a
GPU. Each is replaced by a stub that only defines the symbols that torch asks for; calling one aborts. Needs gcc, nm
and readelf; the result needs none of them. The real nvidia-cuda-runtime and nvidia-cuda-cupti must be installed:
torch does call those, and they are small.
"""

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux-x86-64|libcuda)\.so")
SYSTEM_VERSIONS = ("GLIBC", "CXXABI", "GCC_")
UNVERSIONED = re.compile(r"(nccl|cuFile|cusparseLt|curand|nvshmem)")  # of libraries without symbol versions


@dataclass(slots=True)
class Needs:
    """What torch's libraries ask of libraries that are not there."""

    libraries: set[str] = field(default_factory=set)
    versioned: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    plain: set[str] = field(default_factory=set)


def main(site: Path) -> None:
    """Write the stubs beside torch's own libraries in a site-packages directory."""
    lib = site / "torch/lib"
    present = [*lib.glob("*.so*"), *site.glob("nvidia/*/lib/*.so*")]
    needs = survey(list(lib.glob("*.so*")), present)
    for library in sorted(needs.libraries):
        version = "NVSHMEM" if "nvshmem" in library else library
        names = needs.versioned.get(version)
        write_stub(lib, library, names or needs.plain, version if names else None)
        print(f"{library}: a stub of {len(names or needs.plain)} symbols")


def survey(libraries: list[Path], present: list[Path]) -> Needs:
    """Read the undefined symbols and the needed libraries of each library."""
    here = {path.name for path in present}
    defined = {name.split("@")[0] for path in present for name in _symbols(path, "--defined-only")}
    needs = Needs()
    for path in libraries:
        for line in _lines("readelf", "-d", path):
            needed = re.search(r"NEEDED.*\[(.*)\]", line)
            if needed and needed[1] not in here and not SYSTEM.match(needed[1]):
                needs.libraries.add(needed[1])
        for symbol in _symbols(path, "--undefined-only"):
            name, _, version = symbol.partition("@")
            version = version.lstrip("@")
            if name in defined or version.startswith(SYSTEM_VERSIONS):
                continue
            if version:
                needs.versioned[version].add(name)
            elif UNVERSIONED.match(name):
                needs.plain.add(name)
    return needs


def write_stub(lib: Path, library: str, names: set[str], version: str | None) -> None:
    """Compile a shared library in which every name is a function that aborts."""
    script = lib / "stub.version"
    script.write_text(f"{version} {{ *; }};" if version else "{ global: *; };")
    functions = (f".globl {name}\n.type {name},@function\n{name}: jmp trap" for name in sorted(names))
    assembly = "\n".join([".text", "trap: ud2", *functions, '.section .note.GNU-stack,"",@progbits', ""])
    flags = ["-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"]
    command = ["gcc", *flags, "-x", "assembler", "-", "-o", str(lib / library)]
    subprocess.run(command, input=assembly, text=True, check=True)
    script.unlink()


def _lines(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _symbols(path: Path, which: str) -> list[str]:
    return [line.split()[-1] for line in _lines("nm", "-D", which, path)]
