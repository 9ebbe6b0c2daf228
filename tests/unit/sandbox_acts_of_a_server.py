"""What a server must be able to do, confined or not."""

import mmap
import os
import signal
import socket
import threading

from tests.unit.sandbox_world import World, allowed, read, write


@allowed
def read_the_model(world: World) -> object:
    return read(world.path("model/weights"))


@allowed
def read_the_knobs_through_their_links(world: World) -> object:
    return read(world.path("knobs/knobs.json"))


@allowed
def write_rename_and_delete_in_the_scratch_folder(world: World) -> object:
    os.mkdir(world.path("scratch/folder"))
    write(world.path("scratch/folder/file"))
    os.replace(world.path("scratch/folder/file"), world.path("scratch/folder/other"))
    os.unlink(world.path("scratch/folder/other"))
    return os.rmdir(world.path("scratch/folder"))


@allowed
def map_a_file_to_be_run(world: World) -> object:
    """Shared libraries need it, so it is no promise that it fails."""
    with open(world.path("model/weights"), "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE).close()


@allowed
def start_a_thread(world: World) -> object:
    thread = threading.Thread(target=bool)
    thread.start()
    return thread.join()


@allowed
def use_a_pair_of_sockets(world: World) -> object:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        return other.recv(1)


@allowed
def send_small_answers_at_once(world: World) -> object:
    with socket.socket(fileno=os.dup(world.listener)) as listener:
        return listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@allowed
def signal_itself(world: World) -> object:
    return os.kill(os.getpid(), signal.SIGURG)


@allowed
def know_itself_and_the_machine(world: World) -> object:
    return read("/proc/self/stat"), read("/proc/cpuinfo"), os.urandom(4), os.cpu_count(), os.sched_getaffinity(0)
