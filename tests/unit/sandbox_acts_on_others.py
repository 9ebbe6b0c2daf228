"""Acts on other programs, processes, the network and the kernel. Each raises OSError where it is refused."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import termios
from contextlib import suppress

from headway_runtime.sandbox import kernel

from tests.unit.sandbox_world import World, breaks

# Programs and processes


@breaks("start a program")
def run_a_program(world: World) -> object:
    return _wait_for(subprocess.Popen(["/bin/true"]).pid)


@breaks("start a program")
def become_a_program(world: World) -> object:
    return os.execv("/bin/true", ["true"])


@breaks("start a program")
def become_a_program_by_a_descriptor(world: World) -> object:
    return os.execve(os.open("/bin/true", os.O_PATH), ["true"], {})


@breaks("start a program")
def become_a_program_of_ones_own(world: World) -> object:
    path = world.path("scratch/program")
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
        file.write("#!/bin/sh\n")
    return os.execv(path, [path])


@breaks("reach the kernel by rare system calls")
def keep_a_program_in_memory(world: World) -> object:
    return os.close(os.memfd_create("program"))


@breaks("start a program")
def spawn_a_program(world: World) -> object:
    return _wait_for(os.posix_spawn("/bin/true", ["true"], {}))


@breaks("start a process")
def fork(world: World) -> object:
    return _end_of(os.fork())


@breaks("start a process")
def clone_a_process(world: World) -> object:
    return _end_of(kernel.call("clone", signal.SIGCHLD, 0, 0, 0, 0))


@breaks("start a process")
def clone_a_process_by_the_new_call(world: World) -> object:
    arguments = ctypes.create_string_buffer(88)
    ctypes.cast(arguments, ctypes.POINTER(ctypes.c_uint64))[4] = signal.SIGCHLD  # exit_signal
    return _end_of(kernel.call("clone3", arguments, 88))


# The network and its neighbours


@breaks("open TCP connections and listeners")
def connect(world: World) -> object:
    return socket.create_connection(("127.0.0.1", world.tcp), timeout=5).close()


@breaks("open other sockets")
def send_a_datagram(world: World) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", world.udp))


@breaks("open other sockets")
def connect_a_listener_that_is_shut_down(world: World) -> object:
    """TCP Fast Open needs no `connect`."""
    with socket.socket(fileno=os.dup(world.listener)) as listener:
        listener.shutdown(socket.SHUT_RDWR)
        listener.setblocking(True)
        return listener.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", world.tcp))


@breaks("open other sockets")
def connect_a_listener_that_is_shut_down_by_a_message(world: World) -> object:
    with socket.socket(fileno=os.dup(world.other_listener)) as listener:
        listener.shutdown(socket.SHUT_RDWR)
        listener.setblocking(True)
        return listener.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", world.tcp))


@breaks("open TCP connections and listeners")
def listen_on_another_port(world: World) -> object:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.listen()


@breaks("open other sockets")
def connect_to_a_socket_file(world: World) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect(world.path("outside/socket"))


@breaks("open other sockets")
def connect_to_an_abstract_socket(world: World) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect("\0" + world.abstract)


@breaks("open other sockets")
def send_to_a_socket_file_from_one_of_a_pair(world: World) -> object:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        return one.sendmsg([b"x"], [], 0, world.path("outside/datagrams"))


@breaks("open other sockets")
def speak_to_the_kernels_network(world: World) -> object:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


@breaks("open other sockets")
def open_a_raw_socket(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@breaks("open other sockets")
def open_a_socket_of_a_rarer_kind(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, getattr(socket, "IPPROTO_MPTCP", 262)).close()


# Other processes


@breaks("signal other processes")
def signal_another_process(world: World) -> object:
    return os.kill(world.victim, signal.SIGURG)


@breaks("signal other processes")
def signal_a_thread_of_another_process(world: World) -> object:
    return kernel.call("tgkill", world.victim, world.victim, signal.SIGURG)


@breaks("signal other processes")
def signal_any_thread(world: World) -> object:
    return kernel.call("tkill", world.victim, signal.SIGURG)


@breaks("meddle with other processes")
def have_the_kernel_signal_another_process(world: World) -> object:
    one, other = socket.socketpair()
    with one, other:
        return fcntl.fcntl(one, fcntl.F_SETOWN, world.victim)


@breaks("meddle with other processes")
def hold_another_process(world: World) -> object:
    return os.close(os.pidfd_open(world.victim))


@breaks("look into other processes")
def trace_another_process(world: World) -> object:
    kernel.call("ptrace", 16, world.victim, 0, 0)  # PTRACE_ATTACH
    with suppress(OSError):
        os.waitpid(world.victim, 0x40000000)  # __WALL
    return kernel.call("ptrace", 17, world.victim, 0, 0)


@breaks("look into other processes")
def read_the_memory_of_another_process(world: World) -> object:
    buffer = ctypes.create_string_buffer(16)
    mine = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 16)
    theirs = (ctypes.c_uint64 * 2)(world.address, 16)
    pairs = [ctypes.create_string_buffer(bytes(pair), 16) for pair in (mine, theirs)]
    return kernel.call("process_vm_readv", world.victim, pairs[0], 1, pairs[1], 1, 0)


@breaks("meddle with other processes")
def change_a_limit_of_another_process(world: World) -> object:
    return resource.prlimit(world.victim, resource.RLIMIT_NOFILE)


@breaks("meddle with other processes")
def move_another_process_to_a_processor(world: World) -> object:
    return os.sched_setaffinity(world.victim, os.sched_getaffinity(world.victim))


@breaks("meddle with other processes")
def share_memory_with_another_process(world: World) -> object:
    return kernel.call("shmget", 0, 4096, 0o1600)


# The kernel


@breaks("send commands to devices")
def type_on_the_terminal(world: World) -> object:
    return fcntl.ioctl(world.terminal, termios.TIOCSTI, b"x")


@breaks("reach the kernel by rare system calls")
def set_up_io_uring(world: World) -> object:
    return os.close(kernel.call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


@breaks("reach the kernel by rare system calls")
def load_a_program_into_the_kernel(world: World) -> object:
    attributes = (ctypes.c_uint32 * 18)(2, 4, 8, 1)  # BPF_MAP_TYPE_ARRAY of one entry
    return os.close(kernel.call("bpf", 0, ctypes.create_string_buffer(bytes(attributes)), 72))


@breaks("reach the kernel by rare system calls")
def load_a_filter_into_a_socket(world: World) -> object:
    everything = struct.pack("=HBBI", 0x06, 0, 0, 0xFFFF_FFFF)  # BPF_RET of all bytes
    code = ctypes.create_string_buffer(everything, len(everything))
    one, other = socket.socketpair()
    with one, other:
        return one.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(code)))  # SO_ATTACH_FILTER


@breaks("reach the kernel by rare system calls")
def count_events_of_the_processor(world: World) -> object:
    attributes = (ctypes.c_uint32 * 32)(1, 128)  # PERF_TYPE_SOFTWARE
    return os.close(kernel.call("perf_event_open", ctypes.create_string_buffer(bytes(attributes)), 0, -1, -1, 0))


@breaks("reach the kernel by rare system calls")
def handle_page_faults(world: World) -> object:
    return os.close(kernel.call("userfaultfd", os.O_CLOEXEC | os.O_NONBLOCK))


@breaks("reach the kernel by rare system calls")
def enter_a_namespace_of_ones_own(world: World) -> object:
    return kernel.call("unshare", 0x1000_0000)  # CLONE_NEWUSER


@breaks("reach the kernel by rare system calls")
def mount(world: World) -> object:
    kind, target = (ctypes.create_string_buffer(text.encode()) for text in ("tmpfs", world.path("scratch")))
    kernel.call("mount", kind, target, kind, 0, 0)
    with suppress(OSError):
        kernel.call("umount2", target, 0)
    return target


@breaks("reach the kernel by rare system calls")
def change_the_root(world: World) -> object:
    return os.chroot("/")


@breaks("reach the kernel by rare system calls")
def use_the_key_ring(world: World) -> object:
    return kernel.call("keyctl", 0, -3, 1)  # KEYCTL_GET_KEYRING_ID of the session


@breaks("reach the kernel by rare system calls")
def change_the_personality(world: World) -> object:
    return kernel.call("personality", 0x0004_0000)  # ADDR_NO_RANDOMIZE


def _end_of(child: int) -> object:
    if child == 0:
        os._exit(0)
    return _wait_for(child)


def _wait_for(child: int) -> object:
    """Whether waiting is allowed does not matter: there is a process."""
    with suppress(OSError):
        os.waitpid(child, 0)
    return child
