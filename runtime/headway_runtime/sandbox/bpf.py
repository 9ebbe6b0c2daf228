"""From calls to a program of the kernel's packet filter, which seccomp runs before every system call.

The program sees the machine, the number of the call and six arguments (`struct seccomp_data`). It goes through the
numbers in order: *is it beyond this run of equally treated numbers? then on to the next; else this is the answer.*
That is linear, and costs nothing: the kernel remembers which numbers are always allowed, and runs the program only for
the others. Nothing jumps back or far, so the text below reads like the program.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from headway_runtime.sandbox.numbers import NUMBERS, Machine
from headway_runtime.sandbox.policy import Call, Condition

LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_JMP|BPF_JEQ|BPF_K, BPF_JMP|BPF_JGE|BPF_K, BPF_RET|BPF_K."""

ALLOW = 0x7FFF_0000
KILL_PROCESS = 0x8000_0000
REFUSE = 0x0005_0000 | errno.EPERM
ABSENT = 0x0005_0000 | errno.ENOSYS

NUMBER, MACHINE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
AUDIT: Mapping[Machine, int] = {Machine.X86_64: 0xC000_003E, Machine.AARCH64: 0xC000_00B7}

LONGEST = 4096  # instructions


@dataclass(frozen=True, slots=True)
class Instruction:
    """`struct sock_filter`: after a comparison, `yes` or `no` instructions are skipped."""

    code: int
    value: int
    yes: int = 0
    no: int = 0

    def pack(self) -> bytes:
        """As the kernel reads it."""
        return struct.pack("=HBBI", self.code, self.yes, self.no, self.value)


Program = tuple[Instruction, ...]


def assemble(calls: Iterable[Call], machine: Machine) -> Program:
    """The program for this machine. A call of another machine's interface (32-bit x86) ends the process; one of x32
    has a number beyond all others, and does not exist.
    """
    numbers = NUMBERS[machine]
    named = {numbers[call.name]: _answer(call) for call in calls if call.name in numbers}
    program = [
        Instruction(LOAD, MACHINE),
        Instruction(EQUAL, AUDIT[machine], yes=1),
        Instruction(RETURN, KILL_PROCESS),
        Instruction(LOAD, NUMBER),
    ]
    for end, answer in _runs(named):
        program += [Instruction(AT_LEAST, end, yes=len(answer)), *answer]
    program.append(Instruction(RETURN, ABSENT))
    assert len(program) <= LONGEST
    return tuple(program)


def _runs(named: Mapping[int, Program]) -> Iterator[tuple[int, Program]]:
    """Runs of numbers with one answer, in order: the number after the last one, and the answer."""
    absent = (Instruction(RETURN, ABSENT),)
    for answer, group in groupby(range(max(named) + 1), key=lambda number: named.get(number, absent)):
        *_, last = group
        yield last + 1, answer


def _answer(call: Call) -> Program:
    """Ends with a return on every path: the next run expects the number where the arguments are loaded here."""
    if call.admit == ((),):
        return (Instruction(RETURN, ALLOW),)
    return (*(step for conditions in call.admit for step in _alternative(conditions)), Instruction(RETURN, REFUSE))


def _alternative(conditions: tuple[Condition, ...]) -> Program:
    """Allow when all conditions hold; otherwise go on behind it."""
    steps: list[Instruction] = [Instruction(RETURN, ALLOW)]
    for condition in reversed(conditions):
        past = len(steps)  # what a condition that fails skips
        yes, no = (0, past) if condition.equal else (past, 0)
        compare = [Instruction(EQUAL, condition.value, yes=yes, no=no)]
        mask = [] if condition.mask == 0xFFFF_FFFF else [Instruction(AND, condition.mask)]
        steps = [Instruction(LOAD, ARGUMENTS + 8 * condition.argument + 4 * condition.high), *mask, *compare, *steps]
    return tuple(steps)
