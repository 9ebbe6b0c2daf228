"""buildah with storage of its own under the cache, so that the machine's images stay as they are."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import MissingCapabilityError, StepError
from .layout import cache
from .progress import step
from .requirements import programs, snapshotter

RUN_ROOT = Path("/run/headway-buildah")  # its mounts and locks; empty again after each use


@dataclass(frozen=True, slots=True)
class Buildah:
    """Commands on one storage directory, whose driver must not change once it has images."""

    root: Path
    driver: str

    def command(self, *args: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
        return ["buildah", "--root", self.root, "--runroot", RUN_ROOT, "--storage-driver", self.driver, *args]

    def answer(self, *args: str | os.PathLike[str]) -> str:
        """What the command prints. Raises StepError with what it said."""
        answer = subprocess.run(self.command(*args), capture_output=True, text=True)
        if answer.returncode:
            raise StepError(f"buildah {args[0]} failed: {answer.stderr.strip()}")
        return answer.stdout.strip()

    def step(self, label: str, *args: str | os.PathLike[str]) -> None:
        """Run a slow command, with progress. Raises StepError."""
        step(label, self.command(*args), log=cache() / "images.log")

    def has(self, image: str) -> bool:
        found = subprocess.run(self.command("inspect", "--type", "image", image), capture_output=True)
        return found.returncode == 0

    def close(self) -> None:
        """Remove what it keeps of running containers: there are none between commands."""
        shutil.rmtree(RUN_ROOT, ignore_errors=True)


def open_buildah() -> Buildah:
    """Raises MissingCapabilityError where images cannot be built."""
    if os.geteuid():
        raise MissingCapabilityError("building images needs root")
    programs(("buildah",))
    overlay = snapshotter(cache().resolve(), Path("/proc/self/mountinfo").read_text()) == "overlayfs"
    return Buildah(cache() / "buildah", "overlay" if overlay else "vfs")
