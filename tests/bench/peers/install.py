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
from collections.abc import Callable, Sequence
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

_REQUIRES = """
import importlib.metadata, json, sys
from pip._vendor.packaging.requirements import Requirement
found = [Requirement(text) for text in importlib.metadata.requires(sys.argv[1])]
print(json.dumps([
    f"{each.name}{'[' + ','.join(each.extras) + ']' if each.extras else ''}{each.specifier}" for each in found
    if not each.name.startswith(("torch", "zentorch")) and (each.marker is None or each.marker.evaluate({"extra": ""}))
]))
"""


class InstallError(Exception):
    """The peer cannot be installed on this machine; the message says why."""


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The Python of the peer's environment, made on first use or when `requirements` have changed.

    Raises InstallError with pip's last words when it cannot be made.
    """

    def make(python: Path) -> None:
        _pip(python, *requirements)
        _borrow(python)

    return _made(name, requirements, make)


def separate(name: str, steps: Sequence[Sequence[str]], *, rest_of: str | None = None) -> Path:
    """The same with nothing borrowed: one run of pip with the arguments of each step. `rest_of`: a distribution that a
    step installed without what it requires; at last all of that is installed but torch and its kin, which stay as they
    are. Raises InstallError.
    """

    def make(python: Path) -> None:
        for step in steps:
            _pip(python, *step)
        if rest_of:
            _pip(python, *json.loads(_run([str(python), "-c", _REQUIRES, rest_of])))

    return _made(name, [" ".join(step) for step in steps], make)


def _made(name: str, asked: Sequence[str], make: Callable[[Path], None]) -> Path:
    folder = FOLDER / name
    python = folder / "bin/python"
    key = hashlib.sha256("\n".join([sys.version, *asked]).encode()).hexdigest()
    mark = folder / MARK
    if mark.exists() and mark.read_text() == key:
        return python
    print(f"installing {name} ({', '.join(asked)}) into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    make(python)
    mark.write_text(key)
    return python


def _pip(python: Path, *arguments: str) -> None:
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])


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
