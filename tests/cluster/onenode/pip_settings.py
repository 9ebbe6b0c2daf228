"""The machine's settings of pip, lent to the build of an image and kept in none."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .layout import cache

PASSED = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
CERTIFICATES = "/run/pip-certificates.crt"  # in the build's containers
DOWNLOADS = "/run/pip-cache"


@dataclass(frozen=True, slots=True)
class PipSettings:
    """`values` go into the build's pip.conf; `certificates` is this machine's CA bundle for pip, if it names one."""

    values: dict[str, str]
    certificates: Path | None


def parse(listing: str, environment: Mapping[str, str]) -> PipSettings:
    """From the lines of `pip config list` (`global.timeout='180'`) and PIP_* variables, which win."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        name, assigned, value = line.partition("=")
        if assigned and not name.startswith(":env:"):
            found[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    for name, value in environment.items():
        if name.startswith("PIP_"):
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    certificates = found.get("cert")
    values = {name: " ".join(found[name].split()) for name in PASSED if name in found}
    return PipSettings(values, Path(certificates) if certificates else None)


def of_this_machine() -> PipSettings:
    """What pip would use here; only the environment where this Python has no pip."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    return parse(listing.stdout, os.environ)


@contextmanager
def lent(settings: PipSettings) -> Iterator[list[str]]:
    """Options of `buildah build` that mount the settings, and a cache of downloads, into its containers."""
    downloads = cache() / "pip"
    downloads.mkdir(parents=True, exist_ok=True)
    values = {**settings.values, "cache-dir": DOWNLOADS, "disable-pip-version-check": "1"}
    volumes = {downloads: DOWNLOADS}
    if settings.certificates:
        values["cert"] = CERTIFICATES
        volumes[settings.certificates.resolve()] = f"{CERTIFICATES}:ro"
    with TemporaryDirectory(prefix="headway-pip-") as folder:
        conf = Path(folder, "pip.conf")
        conf.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in values.items()), ""]))
        volumes[conf] = "/etc/pip.conf:ro"
        yield [part for source, target in volumes.items() for part in ("--volume", f"{source}:{target}")]
