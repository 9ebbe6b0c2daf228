"""Hooks for tests: a log of what is asked of the API server, and a death after so many writes. Off unless asked for.

HEADWAY_RBAC_LOG=<file>            append `<group>/<resource> <verb>` for every new combination that is asked for
HEADWAY_CRASH_AFTER_WRITES=<n>     end the process, as SIGKILL would, right after the n-th write was answered
"""

import os
from collections.abc import Mapping
from pathlib import Path

from headway_operator.kinds import Kind


class Debug:
    """The hooks of one process."""

    def __init__(self, *, rbac_log: Path | None = None, crash_after_writes: int | None = None) -> None:
        self._rbac_log = rbac_log
        self._remaining = crash_after_writes
        self._asked: set[str] = set()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Debug":
        """The hooks that the environment asks for."""
        log, crash = environment.get("HEADWAY_RBAC_LOG"), environment.get("HEADWAY_CRASH_AFTER_WRITES")
        return cls(rbac_log=Path(log) if log else None, crash_after_writes=int(crash) if crash else None)

    def asked(self, kind: Kind, verb: str, subresource: str | None = None) -> None:
        """A request is about to be made."""
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        line = f"{kind.group}/{resource} {verb}\n"
        if self._rbac_log is None or line in self._asked:
            return
        self._asked.add(line)
        with self._rbac_log.open("a", encoding="utf-8") as log:
            log.write(line)

    def wrote(self) -> None:
        """A write was answered."""
        if self._remaining is None:
            return
        self._remaining -= 1
        if self._remaining <= 0:
            os._exit(137)
