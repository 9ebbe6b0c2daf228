"""What a process can say of itself without a sandbox: nothing inherited, no core dumps, no large files, no privileges
gained.
"""

import contextlib
import os
import resource
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from headway_runtime.sandbox import kernel

_SET_PDEATHSIG = 1
_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38
_FIRST_UNNAMED = 3  # descriptors 0, 1 and 2 are the standard ones
LARGEST_FILE = 64 << 20  # bytes


def forget_the_caller(kept: Sequence[int] = ()) -> None:
    """Close descriptors that were inherited by mistake, all but those `kept`; read nothing from a terminal, and import
    nothing from the folder that the process happened to be started in, which `python -m` puts first, and PYTHONPATH
    adds when it has an empty entry (`PYTHONPATH=$PYTHONPATH:/mine`). What modules are imported from is what the sandbox
    lets be read.
    """
    first = _FIRST_UNNAMED
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, descriptor)
        first = max(first, descriptor + 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    here = os.getcwd()
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]
    given = os.environ.get("PYTHONPATH")
    entries = given.split(os.pathsep) if given else []  # an empty variable is none
    if "" in entries and here not in {os.path.abspath(entry) for entry in entries if entry}:
        sys.path[:] = [entry for entry in sys.path if entry != here]


def end_with(parent: int) -> None:
    """Be told to end, by SIGINT, when the parent process has: killed, it cannot say so itself. Not of systems that have
    no such thing.
    """
    with contextlib.suppress(OSError, kernel.UnknownMachineError):
        kernel.call("prctl", _SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def limit() -> None:
    """No core dump, which would hold the inputs of users: neither as a file nor through a handler of the node, which
    ignores the limit but not the mark. Nothing gains privileges from a file's mode, which both mechanisms ask for.
    Memory is the cgroup's to bound; a limit on CPU time would end a server that works. Raises OSError.

    No large file: the termination message is a file of the node that is open already, and no quota of the pod counts
    it. A log that goes to a file, on a laptop, has to grow.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not any(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in (1, 2)):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        largest = LARGEST_FILE if hard == resource.RLIM_INFINITY else min(LARGEST_FILE, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    kernel.call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
    kernel.call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def threads() -> int:
    """How many threads this process has. Raises OSError without /proc."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())
