"""Which system calls the serving process may make: the whole description, as values.

A call is allowed, allowed for some arguments, or refused with EPERM; whatever is not named here does not exist (ENOSYS,
so that libraries fall back to older calls as they do on an older kernel). Arguments can be looked at only where they
are numbers: what a pointer leads to can change afterwards. That is why `clone3`, which has its flags in memory, does
not exist, while `clone` may make threads.

The refusals stand for what no file rule covers: other programs and processes, the network, memory of other processes,
and the parts of the kernel where most of its holes were found.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether 32 bits of an argument (0 to 5), masked, are `value`, or are not, when `equal` is False."""

    argument: int
    value: int
    mask: int = WORD
    high: bool = False
    """The upper half of the argument. The kernel itself reads an `int` argument's lower half only."""
    equal: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that is allowed when all conditions of one of `admit` hold; `admit=((),)`: always, `()`: never."""

    name: str
    admit: tuple[tuple[Condition, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class Family:
    """Refused calls, and what they would be good for."""

    reason: str
    names: tuple[str, ...]


_ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "open files": "read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek close "
        "close_range dup dup2 dup3 fstat fstatfs ftruncate fallocate fsync fdatasync flock fadvise64 getdents "
        "getdents64",
        "paths (Landlock says which)": "stat lstat newfstatat statx statfs access faccessat faccessat2 readlink "
        "readlinkat getcwd chdir fchdir umask mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2",
        "waiting": "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait "
        "epoll_pwait2 eventfd eventfd2 pipe pipe2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4",
        "sockets that are there": "accept accept4 listen getsockname getpeername getsockopt recvfrom recvmsg shutdown",
        "memory": "mmap munmap mprotect mremap madvise brk mlock mlock2 munlock msync get_mempolicy membarrier",
        "threads": "futex futex_waitv set_robust_list get_robust_list rseq set_tid_address arch_prctl exit exit_group "
        "sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max "
        "sched_get_priority_min sched_rr_get_interval getcpu",
        "own signals": "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait "
        "sigaltstack restart_syscall pause",
        "time": "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getitimer "
        "setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete",
        "facts": "getpid gettid getppid getpgid getpgrp getsid getuid geteuid getgid getegid getresuid getresgid "
        "getgroups getpriority capget getrandom uname sysinfo getrusage getrlimit",
    }
)

_REFUSED = (
    Family("another program", ("execve", "execveat", "memfd_create")),
    Family("another process", ("fork", "vfork")),
    Family("a network connection; our ports are bound before", ("socket", "connect", "bind", "sendmmsg", "recvmmsg")),
    Family(
        "the memory and the signals of other processes",
        (
            *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp"),
            *("pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"),
            *("shmget", "shmat", "msgget", "msgsnd", "msgrcv", "semget", "semop", "mq_open"),
        ),
    ),
    Family(
        "what Landlock does not see: modes, owners, times and attributes of files, and cutting them by their path",
        (
            *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat", "truncate"),
            *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr"),
            *("lremovexattr", "fremovexattr", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat"),
            *("open_by_handle_at", "name_to_handle_at"),
        ),
    ),
    Family(
        "the kernel's widest doors",
        (
            *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
            *("keyctl", "add_key", "request_key", "splice", "tee", "vmsplice", "personality"),
        ),
    ),
    Family(
        "what only administrators do",
        (
            *(
                "mount",
                "umount2",
                "mount_setattr",
                "move_mount",
                "open_tree",
                "fsopen",
                "fsconfig",
                "fsmount",
                "fspick",
            ),
            *("pivot_root", "chroot", "unshare", "setns", "init_module", "finit_module", "delete_module"),
            *("kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "syslog"),
            *("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid"),
            *("setfsgid", "capset", "clock_settime", "settimeofday", "adjtimex", "clock_adjtime", "sethostname"),
            *("setdomainname", "iopl", "ioperm"),
        ),
    ),
)

_CLONE_THREAD = 0x0001_0000
_CLONE_NAMESPACES = 0x7E02_0080
_MSG_FASTOPEN = 0x2000_0000
_SOCKET_TYPE = 0xF
_TERMINAL, _SOCKET, _COMMAND_TYPE = 0x5400, 0x8900, 0xFF00  # types of ioctl commands

_IOCTLS = (
    *(0x5401, 0x5413),  # TCGETS and TIOCGWINSZ: whether it is a terminal, and how wide
    *(0x5411, 0x541B, 0x5421),  # TIOCOUTQ, FIONREAD, FIONBIO: what is in a socket or pipe, and whether it waits
    *(0x5450, 0x5451),  # FIONCLEX, FIOCLEX
)
_FCNTLS = (
    *(0, 1, 2, 3, 4),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL
    *(5, 6, 7, 36, 37, 38),  # locks
    *(1030, 1031, 1032),  # F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ
)
_SOCKET_OPTIONS = (
    *((socket.SOL_SOCKET, option) for option in (2, 7, 8, 9, 13, 15)),  # reuse, buffers, SO_KEEPALIVE, SO_LINGER
    *((socket.IPPROTO_TCP, option) for option in (1, 4, 5, 6, 12)),  # TCP_NODELAY, keep-alive times, TCP_QUICKACK
)
_PRCTLS = (
    *(15, 16, 0x53564D41),  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA: names of threads and of memory
    *(3, 21, 23, 39, 42),  # PR_GET_DUMPABLE, _SECCOMP, PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS, _THP_DISABLE
)


def families() -> tuple[Family, ...]:
    """The calls that are refused by name, for people."""
    return _REFUSED


def calls(pid: int, *, devices: bool) -> tuple[Call, ...]:
    """Every call that the process `pid` may make, or is refused by name. `devices`: commands of device drivers pass."""
    allowed = chain.from_iterable(names.split() for names in _ALLOWED.values())
    refused = chain.from_iterable(family.names for family in _REFUSED)
    return (
        *(Call(name) for name in allowed),
        *(Call(name, admit=()) for name in refused),
        *_by_argument(pid, devices),
    )


def _by_argument(pid: int, devices: bool) -> tuple[Call, ...]:
    """`clone` makes threads only. Signals and limits are this process's own: with `fcntl`, too, the kernel can be told
    to send one elsewhere. `sendto` and `sendmsg` could connect by way of TCP Fast Open, which needs no `connect`: a
    listener that is shut down becomes a socket that can. Options of sockets load programs and protocols into the
    kernel; a server sets a few plain ones. Among the commands of a terminal is one that types.
    """
    threads = Condition(0, _CLONE_THREAD, mask=_CLONE_THREAD | _CLONE_NAMESPACES)
    pair = (Condition(0, socket.AF_UNIX), Condition(1, socket.SOCK_STREAM, mask=_SOCKET_TYPE))
    drivers = (
        Condition(1, _TERMINAL, mask=_COMMAND_TYPE, equal=False),
        Condition(1, _SOCKET, mask=_COMMAND_TYPE, equal=False),
    )
    return (
        Call("clone", ((threads,),)),
        Call("open", _not_truncating(1)),
        Call("openat", _not_truncating(2)),
        Call("socketpair", (pair,)),
        Call("sendto", ((Condition(3, 0, mask=_MSG_FASTOPEN), Condition(4, 0), Condition(4, 0, high=True)),)),
        Call("sendmsg", ((Condition(2, 0, mask=_MSG_FASTOPEN),),)),
        Call("setsockopt", tuple((Condition(1, level), Condition(2, option)) for level, option in _SOCKET_OPTIONS)),
        Call("kill", ((Condition(0, pid),),)),
        Call("tgkill", ((Condition(0, pid),),)),
        Call("prlimit64", ((Condition(0, 0),),)),
        Call("sched_setaffinity", ((Condition(0, 0),),)),
        Call("ioctl", (*_one_of(1, _IOCTLS), *([drivers] if devices else []))),
        Call("fcntl", _one_of(1, _FCNTLS)),
        Call("prctl", _one_of(0, _PRCTLS)),
    )


def _not_truncating(flags: int) -> tuple[tuple[Condition, ...], ...]:
    """Opening for reading and emptying at once needs no right to write before Landlock's third version."""
    return (
        (Condition(flags, 0, mask=os.O_TRUNC),),
        (Condition(flags, os.O_WRONLY, mask=os.O_ACCMODE),),
        (Condition(flags, os.O_RDWR, mask=os.O_ACCMODE),),
    )


def _one_of(argument: int, values: tuple[int, ...]) -> tuple[tuple[Condition, ...], ...]:
    return tuple((Condition(argument, value),) for value in values)
