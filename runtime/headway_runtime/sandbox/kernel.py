"""System calls that Python has no function for."""

import ctypes
import os
import platform

from headway_runtime.sandbox.numbers import NUMBERS, Machine

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class UnknownMachineError(Exception):
    """A system or a processor whose system calls this package has no numbers for."""


def machine() -> Machine:
    """The processor this process runs on. Raises UnknownMachineError."""
    system, processor = platform.system(), platform.machine()
    if system != "Linux" or processor not in NUMBERS:
        raise UnknownMachineError(
            f"the sandbox is for Linux on {' and '.join(Machine)}; this is {system} on {processor}"
        )
    return Machine(processor)


def call(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> int:
    """Make a system call. Numbers are passed as 64 bits, buffers and structures by their address.

    Raises OSError with the kernel's errno, UnknownMachineError.
    """
    number = NUMBERS[machine()][name]
    result = int(_libc.syscall(ctypes.c_long(number), *(_word(argument) for argument in arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def _word(argument: int | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> object:
    if argument is None or isinstance(argument, int):
        return ctypes.c_ulong(argument or 0)
    return ctypes.byref(argument)
