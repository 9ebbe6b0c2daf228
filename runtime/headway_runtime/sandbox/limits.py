"""What a process can say of itself without a sandbox: nothing inherited, no core dumps, no privileges gained."""

import os
import resource
import sys
from pathlib import Path

from headway_runtime.sandbox import kernel

_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38
_FIRST_UNNAMED = 3  # descriptors 0, 1 and 2 are the standard ones


def forget_the_caller() -> None:
    """Close descriptors that were inherited by mistake, read nothing from a terminal, and import nothing from the
    folder that the process happened to be started in, which `python -m` puts first.
    """
    os.closerange(_FIRST_UNNAMED, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]


def limit() -> None:
    """No core dump, which would hold the inputs of users: neither as a file nor through a handler of the node, which
    ignores the limit but not the mark. Nothing gains privileges from a file's mode, which both mechanisms ask for.
    Memory is the cgroup's to bound; limits on CPU time or file sizes would end a server that works. Raises OSError.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kernel.call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
    kernel.call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def threads() -> int:
    """How many threads this process has. Raises OSError without /proc."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())
