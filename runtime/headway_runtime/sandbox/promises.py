"""What the sandbox promises, who keeps each promise, and what follows where a part is missing.

Both mechanisms together keep all of them from Landlock's first version on (Linux 5.13): what later versions added,
seccomp keeps as well, because it lets no socket be made. So an old kernel lacks nothing, and a kernel without one of
the two lacks exactly the promises that the other does not keep.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """What a confined process cannot do; the Landlock ABI that sees to it, if any does; whether seccomp does."""

    text: str
    landlock: int | None = None
    seccomp: bool = True


PROMISES = (
    Promise("read or write other files", landlock=1, seccomp=False),
    Promise("start a program", landlock=1),
    Promise("start a process"),
    Promise("look into other processes", landlock=1),
    Promise("signal other processes", landlock=6),
    Promise("meddle with other processes"),
    Promise("open TCP connections and listeners", landlock=4),
    Promise("open other sockets"),
    Promise("send commands to devices"),
    Promise("empty files by their path", landlock=3),
    Promise("change modes, owners and times of files"),
    Promise("reach the kernel by rare system calls"),
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is in force: a Landlock ABI (0: none) and seccomp; and why not, for people, where it is not."""

    landlock: int
    seccomp: bool
    reasons: tuple[str, ...] = ()

    def broken(self) -> tuple[str, ...]:
        """The promises that nothing keeps."""
        return tuple(promise.text for promise in PROMISES if not self.keep(promise))

    def keep(self, promise: Promise) -> bool:
        """Whether one of the parts in force does."""
        by_landlock = promise.landlock is not None and self.landlock >= promise.landlock
        return by_landlock or (promise.seccomp and self.seccomp)

    def missing(self) -> list[str]:
        """Sentences for the report: why a part is missing, and what the process can therefore do."""
        if not (self.reasons or self.broken()):
            return []
        return list(self._sentences())

    def _sentences(self) -> Iterator[str]:
        yield from self.reasons
        if broken := self.broken():
            yield f"so the program could {', '.join(broken)}"
