"""Make an installed torch of the ordinary package index, a CUDA build, run on CPUs without NVIDIA's 3 GB of libraries.

Torch's own libraries are linked against cuBLAS, cuDNN, NCCL and others, but call none of them on a machine without a
GPU. Each is replaced by a stub that only defines the symbols that torch asks for; calling one aborts. The real
nvidia-cuda-runtime and nvidia-cuda-cupti must be installed: torch does call those, and they are small.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import elf

SYSTEM = re.compile(r"(lib(c|m|z|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux-x86-64|libcuda)\.so")
UNVERSIONED = re.compile(r"(nccl|cuFile|cusparseLt|curand|nvshmem)")  # of libraries without symbol versions
NEVER_USED = (
    *("torch/include", "torch/share", "torch/bin/protoc*"),
    *("torch/lib/libtorch_cuda_linalg.so", "torch/lib/libgfortran.so*"),
)
NEVER_USED_OF_NVIDIA = ("nvidia/*/include", "nvidia/*/lib/*.a")


def main(site: Path) -> None:
    """Write the stubs beside torch's own libraries in a site-packages directory; remove what is never used."""
    for pattern in NEVER_USED + NEVER_USED_OF_NVIDIA:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    lib = site / "torch/lib"
    own = {path.name: elf.read(path) for path in lib.glob("*.so*")}
    others = {path.name: elf.read(path) for path in site.glob("nvidia/*/lib/*.so*")}
    for library, symbols in sorted(missing(own, others).items()):
        (lib / library).write_bytes(elf.stub(library, symbols))
        print(f"{library}: a stub of {len(symbols)} symbols")


def missing(own: Mapping[str, elf.Library], others: Mapping[str, elf.Library]) -> dict[str, dict[str, str]]:
    """Symbols (name: version) by library, of the libraries that `own` needs and that are in neither.

    A symbol without a version names no library: those that match UNVERSIONED go into every one without versions.
    """
    present = {**own, **others}
    needed = {name for library in own.values() for name in library.needed if not SYSTEM.match(name)} - set(present)
    defined = {name for library in present.values() for name in library.defined}
    asked = [symbol for library in own.values() for symbol in library.undefined if symbol.name not in defined]
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for symbol in asked:
        if symbol.library in needed:
            found[symbol.library][symbol.name] = symbol.version
    plain = _plain(asked)
    return {name: found[name] or plain for name in needed}


def _plain(asked: Iterable[elf.Asked]) -> dict[str, str]:
    return {symbol.name: "" for symbol in asked if not symbol.version and UNVERSIONED.match(symbol.name)}
