"""Locks between processes; the kernel releases them when the holder ends, however it ends."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def try_lock(path: Path) -> IO[str] | None:
    """Take the lock and return the file that holds it (closing it releases the lock), or None if it is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


@contextmanager
def locked(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold the lock; while another process has it, say on stderr what is being waited for."""
    file = try_lock(path)
    if file is None:
        print(f"waiting for {waiting_for} (lock {path})", file=sys.stderr, flush=True)
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        yield
