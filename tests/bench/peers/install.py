"""An environment of its own for every peer, which borrows torch.

torch is 5 GB, so a peer's environment does not install it: a `.pth` file appends this project's site-packages behind
the peer's own, so that whatever the peer pins wins, and torch (with what only torch needs) is the same for all.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.models import CACHE

FOLDER = CACHE / "peers"
MARK = ".headway-installed"
_VERSIONS = """
import importlib.metadata, json, sys, torch, numpy
names = sys.argv[1:]
found = {name: importlib.metadata.version(name) for name in names}
print(json.dumps({**found, "torch": torch.__version__, "numpy": numpy.__version__}))
"""


class InstallError(Exception):
    """The peer cannot be installed on this machine; the message says why."""


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The Python of the peer's environment, made on first use or when `requirements` have changed.

    Raises InstallError with pip's last words when it cannot be made.
    """
    folder = FOLDER / name
    python = folder / "bin/python"
    key = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()
    mark = folder / MARK
    if mark.exists() and mark.read_text() == key:
        return python
    print(f"installing {name} ({', '.join(requirements)}) into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    _borrow(python)
    mark.write_text(key)
    return python


def versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """What the peer's Python really imports: `packages`, torch and numpy."""
    return dict(json.loads(_run([str(python), "-c", _VERSIONS, *packages])))


def _borrow(python: Path) -> None:
    own = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(own, "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _run(command: list[str]) -> str:
    done = subprocess.run(["nice", "-n", "10", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise InstallError("; ".join(lines[-3:]) or f"{command[0]} ended with {done.returncode}")
    return done.stdout
