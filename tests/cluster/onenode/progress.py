"""Run the slow commands of a build: their output goes to a log, a person sees what runs and for how long."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import StepError

LINES_SHOWN = 30  # of a failed command's log
SAY_SOMETHING = 30.0  # seconds between lines where there is no terminal to redraw one


def clock(seconds: float) -> str:
    """Minutes and seconds: 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def step(
    label: str,
    argv: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> float:
    """Run a command to its end and return the seconds it took.

    Raises StepError with the last lines of its output, all of which is in `log`.
    """
    began = time.monotonic()
    terminal = sys.stderr.isatty()
    if not terminal:
        print(f"{label} ...", file=sys.stderr, flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        while True:
            try:
                code = process.wait(timeout=1.0 if terminal else SAY_SOMETHING)
                break
            except subprocess.TimeoutExpired:
                elapsed = clock(time.monotonic() - began)
                line = f"\r\x1b[K{label} {elapsed}" if terminal else f"{label} ... {elapsed} so far\n"
                print(line, end="", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    end = "\r\x1b[K" if terminal else ""
    if code:
        lines = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        print(f"{end}{label}: failed after {clock(seconds)}", file=sys.stderr, flush=True)
        raise StepError("\n".join([f"{label} failed with status {code}; the whole log is {log}", *lines]))
    print(f"{end}{label}: {clock(seconds)}", file=sys.stderr, flush=True)
    return seconds
