"""One of a local pod's processes: started, passed the user's signals, listened to, and surely ended."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self

from headway_api.podconfig import Termination

from headway_runtime.errors import ServeError

END_SECONDS = 30.0
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]
"""Takes each line that a process logs, from a thread of its own."""


class LocalError(ServeError):
    """The file or the manifest cannot be used; the message says why."""


class Interrupted(ServeError):  # noqa: N818 - nothing is wrong
    """A signal told this process to end."""


class Child:
    """One of the pod's processes. While it is entered, the signals that end this process go to the child, which ends by
    itself; when it is left, the child has ended.

    It has a process group of its own: what the terminal sends reaches this process alone, which passes it on once.
    """

    def __init__(
        self,
        module: str,
        options: Mapping[str, Any],
        folder: Path,
        *,
        say: Say,
        environment: Mapping[str, str] | None = None,
        alone: bool = False,
        listeners: Sequence[socket.socket] = (),
    ) -> None:
        """`alone`: nobody else asks it, so that a signal ends it without waiting for more requests. `listeners`: become
        the child's, under their numbers, and are closed here, so that nothing listens when it does not any more.
        """
        self.interrupted = False
        self._module = module
        self._folder = folder
        self._say = say
        self._alone = alone
        self._heard = False  # it has said something, so it listens to signals
        arguments = [str(part) for pair in options.items() for part in pair]
        # -P: no module from the folder that the user is in, which may be somebody else's, with the model.
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._environment = environment
        self._listeners = listeners
        self._process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        (self._folder / "termination-log").unlink(missing_ok=True)  # each process leaves its own reason
        if threading.current_thread() is threading.main_thread():
            heeded = [each for each in _PASSED_ON if not (each == signal.SIGHUP and _is_ignored(each))]  # by nohup
            self._before = {number: signal.signal(number, self._pass_on) for number in heeded}
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
            pass_fds=[listener.fileno() for listener in self._listeners],
        )
        for listener in self._listeners:
            listener.close()
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        if self.interrupted:
            self._process.terminate()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self.end()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def wait(self) -> None:
        """Until it ends by itself. Raises LocalError with its refusal; none when a signal told it to end."""
        assert self._process is not None
        code = self._process.wait()
        self._reader.join(1)
        if code != 0 and not self.interrupted:
            raise LocalError(_refusal(self._folder / "termination-log", f"{self._module} ended with code {code}"))

    def end(self) -> None:
        """Tell it to end, if it has not, without waiting for more requests."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if self._heard else signal.SIGTERM)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(1)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self.interrupted = True
        if self._process is not None:
            # the prepare process has nothing to finish, and Python would show where SIGINT met it, as it would in a
            # pod that has not said anything yet
            at_once = (number == signal.SIGINT or self._alone) and self._module.endswith(".serve") and self._heard
            self._process.send_signal(signal.SIGINT if at_once else signal.SIGTERM)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._heard = True
                # where nobody listens any more (rich then says SystemExit), the pipe must be emptied all the same, or
                # the process would wait for room in it
                with contextlib.suppress(OSError, ValueError, SystemExit):
                    self._say(line.decode(errors="replace").rstrip("\n"))


def _is_ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def _refusal(file: Path, otherwise: str) -> str:
    try:
        refusal = Termination.model_validate(json.loads(file.read_text()))
    except (OSError, ValueError):
        return otherwise
    return f"{refusal.condition or 'Ready'}=False/{refusal.reason}: {refusal.message}"
