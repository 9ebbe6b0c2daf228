"""The filter of system calls as a value: its program is run here as the kernel would run it, on both machines."""

import errno
import re
import struct
from pathlib import Path

import pytest
from headway_runtime.sandbox import bpf
from headway_runtime.sandbox.bpf import ABSENT, ALLOW, KILL_PROCESS, REFUSE, Program, assemble
from headway_runtime.sandbox.numbers import NUMBERS, Machine
from headway_runtime.sandbox.policy import Call, Condition, calls, families

PID = 4711
HEADERS = {
    Machine.X86_64: (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")),
    Machine.AARCH64: (Path("/usr/include/asm-generic/unistd.h"),),
}


def run(program: Program, machine: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: an interpreter of the five instructions."""
    given = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, machine, 0, *(value & (2**64 - 1) for value in given))
    at, accumulator = 0, 0
    while True:
        step = program[at]
        at += 1
        if step.code == bpf.LOAD:
            (accumulator,) = struct.unpack_from("=I", data, step.value)
        elif step.code == bpf.AND:
            accumulator &= step.value
        elif step.code == bpf.EQUAL:
            at += step.yes if accumulator == step.value else step.no
        elif step.code == bpf.AT_LEAST:
            at += step.yes if accumulator >= step.value else step.no
        else:
            assert step.code == bpf.RETURN
            return step.value


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("devices", [False, True])
def test_every_number_is_answered_as_the_description_says(machine: Machine, devices: bool) -> None:
    described = {
        NUMBERS[machine][call.name]: call for call in calls(PID, devices=devices) if call.name in NUMBERS[machine]
    }
    program = assemble(described.values(), machine)
    for number in range(1024):
        answer = run(program, bpf.AUDIT[machine], number)
        call = described.get(number)
        if call is None:
            assert answer == ABSENT, number
        elif call.admit in ((), ((),)):
            assert answer == (ALLOW if call.admit else REFUSE), call.name
        else:
            assert answer in (ALLOW, REFUSE), call.name


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("clone", (0x3D0F00,), True),  # what pthread_create asks for
        ("clone", (17,), False),  # fork: SIGCHLD
        ("clone", (0x4100 | 17,), False),  # posix_spawn: CLONE_VM | CLONE_VFORK
        ("clone", (0x3D0F00 | 0x1000_0000,), False),  # a thread in a user namespace
        ("kill", (PID, 10), True),
        ("kill", (PID + 2**32, 10), True),  # the kernel reads 32 bits of it
        ("kill", (PID - 1, 10), False),
        ("kill", (-1, 9), False),
        ("kill", (0, 9), False),
        ("kill", (-PID, 9), False),
        ("tgkill", (PID, PID + 1, 6), True),
        ("tgkill", (1, 1, 6), False),
        ("socketpair", (1, 1 | 0o2000000, 0), True),
        ("socketpair", (1, 2, 0), False),
        ("socketpair", (30, 1, 0), False),
        ("openat", (-100, 0, 0), True),
        ("openat", (-100, 0, 0o1000), False),
        ("openat", (-100, 0, 0o1003), False),
        ("openat", (-100, 0, 0o1001), True),
        ("openat", (-100, 0, 0o1102), True),
        ("sendto", (3, 0, 1, 0x4000, 0, 0), True),
        ("sendto", (3, 0, 1, 0, 0x7FFF_0000_0000, 16), False),  # an address: its lower half is zero
        ("sendto", (3, 0, 1, 0, 0x1000, 16), False),
        ("sendto", (3, 0, 1, 0x2000_0000, 0, 0), False),
        ("sendmsg", (3, 0, 0x4000), True),
        ("sendmsg", (3, 0, 0x2000_0000), False),
        ("setsockopt", (3, 6, 1), True),  # TCP_NODELAY
        ("setsockopt", (3, 1, 9), True),  # SO_KEEPALIVE
        ("setsockopt", (3, 6, 31), False),  # TCP_ULP
        ("setsockopt", (3, 1, 26), False),  # SO_ATTACH_FILTER
        ("setsockopt", (3, 0, 1), False),  # IP_TOS: the number of another level's option
        ("fcntl", (3, 3, 0), True),
        ("fcntl", (3, 8, 1), False),  # F_SETOWN
        ("fcntl", (3, 15, 1), False),  # F_SETOWN_EX
        ("fcntl", (3, 1026, 1), False),  # F_NOTIFY
        ("prlimit64", (0, 7), True),
        ("prlimit64", (1, 7), False),
        ("sched_setaffinity", (0,), True),
        ("sched_setaffinity", (1,), False),
        ("prctl", (15,), True),
        ("prctl", (4, 1), False),  # PR_SET_DUMPABLE
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),  # TIOCSTI
        ("ioctl", (0, 0x5412 + 2**32), False),
        ("ioctl", (0, 0xC020_462A), False),  # a command of NVIDIA's driver
        ("execve", (), False),
        ("connect", (), False),
        ("socket", (2, 1, 0), False),
    ],
)
def test_arguments_decide(machine: Machine, name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    program = assemble(calls(PID, devices=False), machine)
    answer = run(program, bpf.AUDIT[machine], NUMBERS[machine][name], arguments)
    assert answer == (ALLOW if allowed else REFUSE)


@pytest.mark.parametrize(
    ("command", "allowed"), [(0xC020_462A, True), (0x5412, False), (0x541C, False), (0x8901, False), (0x5401, True)]
)
def test_with_devices_their_drivers_are_commanded_and_terminals_and_sockets_are_not(
    command: int, allowed: bool
) -> None:
    program = assemble(calls(PID, devices=True), Machine.X86_64)
    answer = run(program, bpf.AUDIT[Machine.X86_64], NUMBERS[Machine.X86_64]["ioctl"], (0, command))
    assert answer == (ALLOW if allowed else REFUSE)


def test_calls_of_other_machines_end_the_process_and_x32_does_not_exist() -> None:
    program = assemble(calls(PID, devices=False), Machine.X86_64)
    assert run(program, 0x4000_0003, 11) == KILL_PROCESS  # i386
    assert run(program, bpf.AUDIT[Machine.AARCH64], 0) == KILL_PROCESS
    assert run(program, bpf.AUDIT[Machine.X86_64], 0x4000_0000) == ABSENT  # x32's read
    assert run(program, bpf.AUDIT[Machine.X86_64], 0xFFFF_FFFF) == ABSENT


NEVER = (
    *("execve", "execveat", "fork", "vfork", "clone3", "memfd_create", "socket", "connect", "bind", "sendmmsg"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_send_signal", "tkill"),
    *("bpf", "io_uring_setup", "io_uring_enter", "userfaultfd", "perf_event_open", "keyctl", "add_key", "request_key"),
    *("mount", "umount2", "move_mount", "unshare", "setns", "pivot_root", "chroot", "personality"),
    *("kexec_load", "init_module", "finit_module", "open_by_handle_at", "chmod", "fchmodat", "truncate", "seccomp"),
)


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("devices", [False, True])
def test_whatever_the_arguments_these_are_never_allowed(machine: Machine, devices: bool) -> None:
    program = assemble(calls(PID, devices=devices), machine)
    for name in NEVER:
        if (number := NUMBERS[machine].get(name)) is not None:
            for arguments in ((), (1,) * 6, (PID,) * 6, (0x10000,) * 6, (2**64 - 1,) * 6):
                assert run(program, bpf.AUDIT[machine], number, arguments) in (REFUSE, ABSENT), name


def test_clone3_does_not_exist_because_its_flags_cannot_be_seen() -> None:
    for machine in Machine:
        assert run(assemble(calls(PID, devices=False), machine), bpf.AUDIT[machine], 435) == ABSENT
    assert ABSENT & 0xFFFF == errno.ENOSYS


@pytest.mark.parametrize("machine", Machine)
def test_programs_are_within_the_kernels_limits(machine: Machine) -> None:
    program = assemble(calls(PID, devices=True), machine)
    assert len(program) <= bpf.LONGEST
    for at, step in enumerate(program):
        assert 0 <= step.yes <= 255
        assert at + 1 + max(step.yes, step.no) < len(program) or step.code == bpf.RETURN
        assert len(step.pack()) == 8


def test_every_call_is_described_once_and_has_a_number() -> None:
    names = [call.name for call in calls(PID, devices=False)]
    assert len(names) == len(set(names))
    numbered = NUMBERS[Machine.X86_64].keys() | NUMBERS[Machine.AARCH64].keys()
    assert set(names) <= numbered
    assert numbered - set(names) == {
        *("clone3", "seccomp"),
        *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
    }
    assert all(family.reason for family in families())


def test_alternatives_and_conjunctions_are_evaluated_as_they_read() -> None:
    admit = (
        (Condition(0, 1), Condition(1, 2, high=True)),
        (Condition(2, 0x10, mask=0xF0, equal=False), Condition(3, 9)),
    )
    program = assemble([Call("read", admit)], Machine.X86_64)

    def allows(*arguments: int) -> bool:
        return run(program, bpf.AUDIT[Machine.X86_64], 0, arguments) == ALLOW

    assert allows(1, 2 << 32)
    assert not allows(1, 2, 0x10, 9)
    assert allows(0, 0, 0x20, 9)
    assert not allows(0, 0, 0x1F, 9)
    assert not allows(0, 0, 0x20, 8)


@pytest.mark.parametrize("machine", Machine)
def test_numbers_are_those_of_the_kernels_headers(machine: Machine) -> None:
    header = next((file for file in HEADERS[machine] if file.exists()), None)
    if header is None:
        pytest.skip("no headers of the kernel here")
    text = header.read_text()
    found = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", text)}
    shared = dict(re.findall(r"#define __NR3264_(\w+) (\d+)", text))
    aliases = re.findall(r"#define __NR_(\w+) __NR3264_(\w+)", text)
    found |= {name: int(shared[real]) for name, real in aliases if real in shared}
    known = {name: number for name, number in NUMBERS[machine].items() if name in found}
    assert len(known) > 0.95 * len(NUMBERS[machine])  # older headers lack the newest calls
    assert known == {name: found[name] for name in known}
