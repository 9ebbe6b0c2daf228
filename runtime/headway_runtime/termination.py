"""Where the kubelet reads why a container ended."""

import json
import os
from pathlib import Path

from headway_api.podconfig import Termination

from headway_runtime.logs import log

MESSAGE_LIMIT = 3000  # bytes, as JSON; the kubelet keeps 4096 of a termination message


class TerminationLog:
    """The file, opened before the process confines itself. Without it (a container outside of Kubernetes) the log alone
    says why.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._unwritable(error)

    def write(self, failure: Termination) -> None:
        """Leave the reason; it replaces what an earlier process left."""
        if self._descriptor is None:
            return
        message = failure.message
        while len(json.dumps(message)) > MESSAGE_LIMIT:  # a character may be twelve bytes there
            message = message[: -max(1, (len(json.dumps(message)) - MESSAGE_LIMIT) // 12)]
        short = failure.model_copy(update={"message": message})
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, short.to_json().encode(), 0)
        except OSError as error:
            self._unwritable(error)

    def _unwritable(self, error: OSError) -> None:
        log("termination_log_unwritable", level="warning", path=str(self._path), error_message=str(error))
