"""Acts on files. Each raises OSError where it is refused."""

import ctypes
import os

from headway_runtime.sandbox import kernel

from tests.unit.sandbox_world import World, breaks, read, write


@breaks("read or write other files")
def read_the_users_of_the_system(world: World) -> object:
    return read("/etc/passwd")


@breaks("read or write other files")
def read_a_file_outside(world: World) -> object:
    return read(world.path("outside/secret"))


@breaks("read or write other files")
def list_a_folder_outside(world: World) -> object:
    return os.listdir(world.path("outside"))


@breaks("read or write other files")
def read_by_way_of_a_link(world: World) -> object:
    return read(world.path("scratch/link-to-secret"))


@breaks("read or write other files")
def read_by_way_of_the_root_in_proc(world: World) -> object:
    return read("/proc/self/root" + world.path("outside/secret"))


@breaks("read or write other files")
def read_beside_the_scratch_folder(world: World) -> object:
    return read(world.path("scratch/../outside/secret"))


@breaks("read or write other files")
def read_the_environment_of_another_process(world: World) -> object:
    return read(f"/proc/{world.victim}/environ")


@breaks("read or write other files")
def read_the_memory_of_another_process_as_a_file(world: World) -> object:
    with open(f"/proc/{world.victim}/mem", "rb", buffering=0) as file:
        file.seek(world.address)
        return file.read(16)


@breaks("reach the kernel by rare system calls")
def open_a_folder_by_a_handle(world: World) -> object:
    handle = ctypes.create_string_buffer(128 + 8)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint32))[0] = 128
    mount = ctypes.create_string_buffer(4)
    path = ctypes.create_string_buffer(world.path("outside").encode())
    kernel.call("name_to_handle_at", -100, path, handle, mount, 0)
    root = os.open(world.folder, os.O_RDONLY)
    return os.close(kernel.call("open_by_handle_at", root, handle, os.O_RDONLY))


@breaks("read or write other files")
def write_a_file_outside(world: World) -> object:
    return write(world.path("outside/new"))


@breaks("read or write other files")
def write_into_the_model(world: World) -> object:
    return write(world.path("model/new"))


@breaks("read or write other files")
def change_the_model(world: World) -> object:
    return write(world.path("model/weights"), "r+")


@breaks("read or write other files")
def change_the_model_by_a_descriptor_that_reads(world: World) -> object:
    reading = os.open(world.path("model/weights"), os.O_RDONLY)
    return write(f"/proc/self/fd/{reading}", "r+")


@breaks("read or write other files")
def change_the_knobs(world: World) -> object:
    return write(world.path("knobs/knobs.json"), "r+")


@breaks("read or write other files")
def delete_from_the_model(world: World) -> object:
    return os.unlink(world.path("model/to-delete"))


@breaks("read or write other files")
def rename_in_the_model(world: World) -> object:
    return os.rename(world.path("model/to-rename"), world.path("model/renamed"))


@breaks("read or write other files")
def move_a_file_in(world: World) -> object:
    return os.rename(world.path("outside/to-move"), world.path("scratch/moved"))


@breaks("read or write other files")
def move_a_file_out(world: World) -> object:
    return os.rename(world.path("scratch/to-move"), world.path("outside/moved-out"))


@breaks("read or write other files")
def link_a_file_in(world: World) -> object:
    return os.link(world.path("outside/secret"), world.path("scratch/hard"))


@breaks("change modes, owners and times of files")
def make_a_link(world: World) -> object:
    return os.symlink(world.path("outside"), world.path("scratch/soft"))


@breaks("read or write other files")
def make_a_pipe_with_a_name(world: World) -> object:
    return os.mkfifo(world.path("scratch/fifo"))


@breaks("empty files by their path")
def empty_a_file_by_its_path(world: World) -> object:
    return os.truncate(world.path("model/to-empty"), 0)


@breaks("empty files by their path")
def empty_a_file_while_opening_it_to_read(world: World) -> object:
    return os.close(os.open(world.path("model/to-empty"), os.O_RDONLY | os.O_TRUNC))


@breaks("change modes, owners and times of files")
def change_a_mode(world: World) -> object:
    return os.chmod(world.path("outside/secret"), 0o644)


@breaks("change modes, owners and times of files")
def change_a_time(world: World) -> object:
    return os.utime(world.path("outside/secret"))


@breaks("change modes, owners and times of files")
def set_an_attribute(world: World) -> object:
    return os.setxattr(world.path("outside/secret"), "user.note", b"x")
