"""Runs a command and adopts whatever it leaves behind, so that its tree of processes stays one tree and ends as one.

    python supervise.py COMMAND...

Servers start daemons that outlive their parents (Ray's raylet, Triton). As the subreaper of its descendants, this
process becomes their parent, and the CPU time of those that have ended counts as its children's. On SIGTERM, or when
the one who started it dies, every descendant is asked to end and, 10 seconds later, killed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from processes import ProcessTable, descendants

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_SECONDS = 10.0


def _below() -> list[int]:
    return descendants(os.getpid(), ProcessTable.now())


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end(child: int) -> None:
    """End every descendant: first the command itself, which ends its own, then those that are left."""
    began, asked = time.monotonic(), False
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    while True:
        _reap()
        left, waited = _below(), time.monotonic() - began
        if not left:
            return
        if waited > GRACE_SECONDS:
            _signal(left, signal.SIGKILL)
        elif not asked and (child not in left or waited > GRACE_SECONDS / 2):
            _signal(left, signal.SIGTERM)
            asked = True
        time.sleep(0.05)


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    waiting = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waiting)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)

    child = subprocess.Popen(sys.argv[1:], preexec_fn=unblock)
    while signal.sigwait(waiting) == signal.SIGCHLD:
        _reap()
        if not _below():
            return
    end(child.pid)


if __name__ == "__main__":
    main()
