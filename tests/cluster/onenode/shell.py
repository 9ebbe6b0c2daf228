"""Run a command that must succeed."""

import subprocess
from collections.abc import Sequence


def sh(*args: object, pass_fds: Sequence[int] = ()) -> None:
    """Run it with this process's output. Raises CalledProcessError."""
    subprocess.run([str(arg) for arg in args], check=True, pass_fds=pass_fds)


def answer_of(*args: object) -> str:
    """Run it and return what it prints. Raises CalledProcessError."""
    return subprocess.run([str(arg) for arg in args], check=True, stdout=subprocess.PIPE, text=True).stdout
