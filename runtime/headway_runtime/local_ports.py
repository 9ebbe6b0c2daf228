"""Where a pod on a laptop listens: the ports are taken before anything is prepared, and handed to the process that
serves.
"""

import contextlib
import fcntl
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headway_runtime.local_process import LocalError

_FIRST_UNNAMED = 3  # descriptors 0, 1 and 2 are the standard ones


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a local pod listens. Entered, it closes what listens when it is left, if no process has taken it over."""

    host: str
    inference: int
    admin: int
    grpc: int
    listeners: tuple[socket.socket, ...] = ()

    @classmethod
    def of(cls, host: str, inference: int = 0, admin: int = 0, grpc: int = 0) -> "Ports":
        """Listen. A port of 0 stands for any that is free. Raises LocalError for a host that is not of this machine,
        and for ports that are taken, all of which it names.
        """
        asked = {"--port": inference, "--admin-port": admin, "--grpc-port": grpc}
        taken: dict[str, str] = {}  # why, by option and port
        with contextlib.ExitStack() as held:
            listeners = [held.enter_context(_socket(host)) for _ in asked]
            for listener, (option, port) in zip(listeners, asked.items(), strict=True):
                try:
                    listener.bind((host, port))
                    listener.listen()  # two may be bound to a port, and one listens
                except OSError as error:
                    taken[f"{option} {port}"] = error.strerror or str(error)
            if not taken:
                held.pop_all()
                chosen = [int(each.getsockname()[1]) for each in listeners]
                return cls(host, chosen[0], chosen[1], chosen[2], tuple(listeners))
        said = ", ".join(f"{what} ({why})" for what, why in taken.items())
        free = " ".join(f"{what.split()[0]} 0" for what in taken)
        raise LocalError(
            f"PortTaken: cannot listen on {host}: {said}; end what listens there (another headway serve?), choose "
            f"others, or take any that are free: {free}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self.listeners:
            listener.close()

    @property
    def url(self) -> str:
        """Of inference."""
        return f"http://{self._authority}:{self.inference}"

    @property
    def admin_url(self) -> str:
        """Of the report and the metrics."""
        return f"http://{self._authority}:{self.admin}"

    @property
    def grpc_address(self) -> str:
        """Of inference by gRPC."""
        return f"{self._authority}:{self.grpc}"

    @property
    def _authority(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - where to ask, not to listen
        return f"[{host}]" if ":" in host else host


def _socket(host: str) -> socket.socket:
    """One that can be bound to a port of this host. Raises LocalError where that is not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as anywhere:
            anywhere.bind((host, 0))
    except OSError as error:
        raise LocalError(f"--host {host}: {error.strerror}") from None
    found = _above_the_standard_ones(socket.socket(family))
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have just ended hold no port
    return found


def _above_the_standard_ones(found: socket.socket) -> socket.socket:
    """The same under a number that no process takes for its input, its output or its errors: a shell may have started
    this one without them, and then a socket gets theirs.
    """
    with found:
        return socket.socket(fileno=fcntl.fcntl(found.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_UNNAMED))
