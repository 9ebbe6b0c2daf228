"""What is measured: a model at a URL, or a file that is served here for as long as it is measured."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway_api.names import ADMIN_PORT
from headway_api.podconfig import Knobs, Phase, Report, knobs_hash
from headway_api.types import Oversize, Precision

from headway_runtime import local
from headway_runtime.bench.connection import Address
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import address_of, exchange, fetch_json
from headway_runtime.bench.model import ModelInfo, from_metadata, with_inspection
from headway_runtime.bench.sizes import Distribution, check_sizes

ACKNOWLEDGE_SECONDS = 10.0
ADMIN_SAYS = b"this port serves /report, /metrics and /healthz\n"  # asked for anything else
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Target:
    """A served model. `pid` and `knobs_file` are there when it is served by this process."""

    url: str
    admin_url: str | None
    model: ModelInfo
    generates: bool = False  # text, behind OpenAI's API
    pid: int | None = None
    knobs_file: Path | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def address(self) -> Address:
        """Of inference."""
        return address_of(self.url)

    def report(self) -> Report | None:
        """The pod's own; None when its admin port is not reached."""
        return None if self.admin_url is None else _report(self.admin_url)

    def cpu_seconds(self) -> float | None:
        """User and system time that the pod has used; None when it runs elsewhere."""
        if self.pid is None:
            return None
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def set_knobs(self, changes: Mapping[str, Any]) -> Report:
        """Change hot knobs, without a restart, and wait until the pod obeys. Raises BenchError."""
        assert self.knobs_file is not None
        knobs = Knobs.model_validate({**json.loads(self.knobs_file.read_text()), **changes})
        text = knobs.to_json()
        part = self.knobs_file.with_suffix(".part")
        part.write_text(text)
        part.replace(self.knobs_file)
        latest = time.monotonic() + ACKNOWLEDGE_SECONDS
        while time.monotonic() < latest:
            report = self.report()
            if report is not None and report.knobs.hash == knobs_hash(text):
                return report
            time.sleep(0.05)
        raise BenchError(f"the pod has not acknowledged its knobs in {ACKNOWLEDGE_SECONDS:g} s")


def at_url(url: str, *, admin_url: str | None, model: str | None) -> Target:
    """A model that is served. Without `admin_url`: port 8081 of the same host, if a pod answers there. Without either,
    a text model is the only one that OpenAI's `/v1/models` lists.

    Raises BenchError when nothing answers, or when it is not said, and cannot be known, which model is meant.
    """
    address = address_of(url)
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    if base.endswith("/v1"):
        raise BenchError(f"{url}: leave out /v1, which is OpenAI's part of it: {base.removesuffix('/v1')}")
    try:
        _, said = exchange(f"{base}/v2", "GET", None, {}, seconds=10)
    except BenchError as error:
        raise BenchError(f"{url} does not answer: {error}") from None
    if said == ADMIN_SAYS:
        raise BenchError(
            f"{url} is a pod's admin port: give the URL of inference (port 8080, unless --port says otherwise), and "
            f"this one with --admin-url {base}"
        )
    asked = admin_url or f"http://{address.host}:{ADMIN_PORT}"
    warnings = []
    try:
        report = _report(asked)
        if model not in (None, report.model) or not _serves(base, report.model):
            raise BenchError(f"{asked} is the admin port of model {report.model!r}")
    except BenchError as error:
        if admin_url is not None:
            raise
        report = None
        warnings.append(f"no cost curve and no advice: {error}; name the pod's admin port with --admin-url")
    admin = asked if report else None
    if report is not None:
        generates, name = report.generation is not None, report.model
    else:
        listed = _listed(base)
        name = model or (listed[0] if len(listed) == 1 else "")
        generates = name in listed and _takes_text(base, name)
        if not name or not (generates or model):
            raise BenchError(f"which model? --model NAME ({warnings[0]})")
    if generates:
        return Target(base, admin, ModelInfo(name, "", (), None), generates=True, warnings=warnings)
    info = from_metadata(fetch_json(f"{base}/v2/models/{name}"), _dimensions(report))
    return Target(base, admin, info, warnings=warnings)


@contextlib.contextmanager
def served(
    file: Path,
    manifest: Path | None,
    *,
    precision: Precision | None = None,
    sizes: Mapping[str, Distribution],
    say: Callable[[str], None],
    log: Callable[[str], None],
) -> Iterator[Target]:
    """Serve a `.pt2` on free ports of loopback, as `headway serve` does, and end it. `precision`: rather than the
    manifest's.

    Raises BenchError, LocalError, Interrupted.
    """
    from headway_runtime.prepare.report import describe

    program_facts = describe(file).facts.get("programs") or [None]
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        found = local.read_manifest(manifest) if manifest else None
        config = local.write_files(folder, file, found, precision=precision)
        chosen = config.artifact.program
        program = next((p for p in program_facts if p and (p["name"] == chosen if chosen else p["default"])), None)
        if program is not None and program["steps"] is None and program["generation"] is None:
            bounded = config.batching.oversize is Oversize.REJECT
            check_sizes(program["dimensions"], config.batching.shape_buckets or {} if bounded else {}, sizes)
        say("preparing")
        local.prepare(folder, found[1].artifact.digest if found else None, say=log)
        with local.Ports.of("127.0.0.1") as ports, local.serve(folder, ports, say=log, alone=True) as pod:
            report = _until_ready(pod, ports.admin_url, say)
            generates = report.generation is not None
            if generates:
                info = ModelInfo(config.model, "", (), None)
            else:
                info = from_metadata(fetch_json(f"{ports.url}/v2/models/{config.model}"), _dimensions(report))
                info = info if program is None else with_inspection(info, program)
            knobs = folder / "knobs.json"
            try:
                yield Target(ports.url, ports.admin_url, info, generates, pid=pod.pid, knobs_file=knobs)
            except (BenchError, OSError):
                if not pod.interrupted:
                    raise
            if pod.interrupted:  # whatever was measured since is of a pod that ends
                raise local.Interrupted


def _until_ready(pod: local.Child, admin_url: str, say: Callable[[str], None]) -> Report:
    while pod.running:
        with contextlib.suppress(BenchError):
            report = _report(admin_url)
            if report.phase is Phase.READY:
                return report
            buckets = report.buckets
            say(f"warming: {buckets.warm} of {buckets.total} buckets" if buckets.total else "loading")
        time.sleep(0.1)
    pod.wait()  # raises its refusal
    raise local.Interrupted


def _serves(base: str, name: str) -> bool:
    """Whether a pod of this model is there: at the usual admin port may be another's."""
    try:
        return bool(fetch_json(f"{base}/v2/models/{name}")["name"] == name)
    except (BenchError, KeyError, TypeError):
        return False


def _listed(base: str) -> list[str]:
    """Names of the models that OpenAI's API lists; none where it is not spoken."""
    try:
        return [str(entry["id"]) for entry in fetch_json(f"{base}/v1/models")["data"]]
    except (BenchError, KeyError, TypeError):
        return []


def _takes_text(base: str, name: str) -> bool:
    """Whether a listed model generates text: another server's does, a pod's has the inputs of text streams."""
    try:
        inputs = fetch_json(f"{base}/v2/models/{name}")["inputs"]
    except (BenchError, KeyError):
        return True
    return any(entry.get("name") == "text_input" for entry in inputs)


def _report(admin_url: str) -> Report:
    return Report.model_validate(fetch_json(f"{admin_url.rstrip('/')}/report", seconds=5))


def _dimensions(report: Report | None) -> list[str]:
    """The dimensions of the pod's buckets."""
    return [] if report is None else list(dict.fromkeys(name for cost in report.buckets.costs for name in cost.sizes))
