"""A real Prometheus for the dashboard's questions: Debian's, unpacked beside the other tools and never installed,
because its package would start a server on the user's machine.
"""

import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.ports import free_port

PACKAGE = "prometheus"
SCRAPES = 4  # rates need at least two in their window


class NoPrometheusError(Exception):
    """It cannot be had here; the message says why."""


def program(cache: Path) -> Path:
    """Path of the server, fetched by apt on first use. Raises NoPrometheusError."""
    found = cache / PACKAGE / "usr/bin/prometheus"
    if found.exists():
        return found
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        os.chmod(folder, 0o755)  # apt fetches as a user of its own
        try:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True, text=True)
            (package,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, "unpacked"], cwd=folder, check=True, capture_output=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise NoPrometheusError(f"{error} {getattr(error, 'stderr', '')}") from None
        (Path(folder) / "unpacked").rename(cache / PACKAGE)
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The samples that answer a query now. Raises ValueError with the server's words when it is not one,
        and OSError while the server is starting.
        """
        asked = urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=10) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            raise ValueError(f"{query}: {error.read().decode()}") from None
        found: list[dict[str, Any]] = document["data"]["result"]
        return found


@contextmanager
def prometheus(server: Path, folder: Path, target: str, labels: dict[str, str]) -> Iterator[Prometheus]:
    """Scrapes `host:port` every second and gives what it finds these labels, as a PodMonitor would."""
    port = free_port()
    scrape = {"job_name": "models", "static_configs": [{"targets": [target], "labels": labels}]}
    (folder / "prometheus.yml").write_text(
        json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]})
    )
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "log.level": "error",
    }
    process = subprocess.Popen([server, *(f"--{name}={value}" for name, value in options.items())])
    running = Prometheus(f"http://127.0.0.1:{port}")
    try:
        end = time.monotonic() + 60
        while not has_scraped(running):
            assert process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < end, "Prometheus has scraped nothing"
            time.sleep(0.2)
        yield running
    finally:
        process.terminate()
        process.wait(20)


def has_scraped(server: Prometheus) -> bool:
    """Whether there is something to ask about."""
    try:
        (found,) = server.ask("count_over_time(up[1m])") or [{"value": [0, "0"]}]
    except OSError:
        return False
    return int(found["value"][1]) >= SCRAPES
