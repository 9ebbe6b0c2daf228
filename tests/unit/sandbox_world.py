"""What a hostile program in the serving process would reach for, and the register of its acts."""

import os
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """What there is to reach. The last three are descriptors from before the process confined itself."""

    folder: str
    victim: int
    address: int
    tcp: int
    udp: int
    abstract: str
    listener: int = -1
    other_listener: int = -1
    terminal: int = -1

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


Act = Callable[[World], object]
ACTS: dict[str, Act] = {}
ALLOWED: dict[str, Act] = {}
PROMISE: dict[str, str] = {}  # of each act, the promise that it would break


def breaks(promise: str) -> Callable[[Act], Act]:
    def act(function: Act) -> Act:
        ACTS[function.__name__] = function
        PROMISE[function.__name__] = promise
        return function

    return act


def allowed(function: Act) -> Act:
    ALLOWED[function.__name__] = function
    return function


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(16)


def write(path: str, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write("x")
