"""Loads the filter of system calls, for every thread of the process at once."""

import ctypes
from collections.abc import Iterable

from headway_runtime.sandbox import bpf, kernel
from headway_runtime.sandbox.policy import Call

_SET_MODE_FILTER = 1
_TSYNC = 1


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def restrict(calls: Iterable[Call]) -> None:
    """From now on only these calls. Needs no_new_privs. Raises OSError, UnknownMachineError."""
    code = b"".join(instruction.pack() for instruction in bpf.assemble(calls, kernel.machine()))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    thread = kernel.call("seccomp", _SET_MODE_FILTER, _TSYNC, program)
    if thread != 0:
        raise OSError(0, f"thread {thread} has a filter of its own", "seccomp")
