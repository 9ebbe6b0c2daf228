"""A process that confines itself or does not (the control), does the acts it is told to, and prints one line of JSON
for each: its name, and `done` or the errno.
"""

import ctypes
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process, kernel

from tests.unit.sandbox_acts import ACTS, ALLOWED
from tests.unit.sandbox_world import World


def attempt(name: str, world: World) -> int:
    """0, or the errno."""
    try:
        (ACTS | ALLOWED)[name](world)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def name_of(code: int) -> str:
    return errno.errorcode.get(code, str(code)) if code else "done"


def in_a_process_of_its_own(name: str, world: World) -> int:
    """An act may end its process, or make it another program."""
    child = os.fork()
    if child == 0:
        os._exit(attempt(name, world))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def imitate(lack: dict[str, int]) -> None:
    """Be a kernel that lacks something: `landlock` and `seccomp` are errnos of these calls, `abi` an older version."""
    real = kernel.call

    def call(name: str, *arguments: Any) -> int:
        if (code := lack.get(name.partition("_")[0])) is not None:
            raise OSError(code, os.strerror(code), name)
        result = real(name, *arguments)
        asks_for_the_version = name == "landlock_create_ruleset" and arguments[0] is None
        return min(result, lack.get("abi", result)) if asks_for_the_version else result

    kernel.call = call


def say(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


def on_the_main_thread(work: Callable[[], None]) -> None:
    work()


def on_a_later_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def on_a_thread_of_openmp(work: Callable[[], None]) -> None:
    """In the pool that torch's own operators compute in: its library is asked to run a function in parallel."""
    import torch

    torch.set_num_threads(2)
    matrix = torch.ones(512, 512)
    assert float((matrix @ matrix)[0, 0]) == 512
    (library,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    main, done = threading.get_native_id(), threading.Event()

    def run(_: object) -> None:
        if threading.get_native_id() != main:
            work()
            done.set()

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run)
    ctypes.CDLL(library).GOMP_parallel(function, None, 2, 0)
    assert done.is_set()


PLACES = {"main": on_the_main_thread, "thread": on_a_later_thread, "openmp": on_a_thread_of_openmp}


@contextmanager
def opened() -> Iterator[dict[str, int]]:
    """What the serving process has opened before it confines itself."""
    with socket.socket() as listener, socket.socket() as other:
        for each in (listener, other):
            each.bind(("127.0.0.1", 0))
            each.listen()
        controller, terminal = os.openpty()
        yield {"listener": listener.fileno(), "other_listener": other.fileno(), "terminal": terminal}
        os.close(controller)


def become(user: int) -> None:
    """Another user, without any capability. The interpreter may lie where that user cannot read."""
    "name".encode("idna")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def confine_as_the_server_does(world: World) -> dict[str, Any]:
    scratch = Path(world.path("scratch"))
    os.environ["TMPDIR"] = str(scratch)
    read_only = (Path(world.path("model")), Path(world.path("knobs")))
    files = files_of_this_process(read=read_only, scratch=scratch, gpu=False)
    return confine(files, demand=Sandbox.BEST_EFFORT).to_dict()


def main() -> None:
    request = json.loads(sys.argv[1])
    with opened() as descriptors:
        world = World(**request["world"], **descriptors)
        do = attempt if request["confined"] else in_a_process_of_its_own
        early, begin = threading.Event(), threading.Event()

        def work() -> None:
            for name in request["acts"]:
                say({"act": name, "outcome": name_of(do(name, world))})

        if request["user"]:
            become(request["user"])
        if request["where"] == "before":
            thread = threading.Thread(target=lambda: (early.set(), begin.wait(), work()), daemon=True)
            thread.start()
            early.wait()
        imitate(request["lack"])
        if request["confined"]:
            say({"act": "confine", "outcome": confine_as_the_server_does(world)})
        if request["where"] == "before":
            begin.set()
            thread.join()
        else:
            PLACES[request["where"]](work)


if __name__ == "__main__":
    main()
