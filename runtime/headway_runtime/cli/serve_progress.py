"""What `headway serve` tells its user: how far the pod has come, and, once it is ready, how to ask it."""

import json
import time
from pathlib import Path
from typing import Any, Self

from headway_api.podconfig import Phase, Report
from rich.console import Console
from rich.status import Status

from headway_runtime.bench.encode import json_body
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import fetch_json
from headway_runtime.bench.inputs import Maker
from headway_runtime.bench.model import from_metadata
from headway_runtime.bench.sizes import Distribution
from headway_runtime.local import Child, Ports

POLL_SECONDS = 0.1
LONGEST_EXAMPLE = 1_500  # characters of a request that one would paste into a terminal


class Progress:
    """On a terminal one line that changes, elsewhere a line for each step. Everything goes to standard error."""

    def __init__(self, *, logs: bool) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._logs = logs
        self._began = time.monotonic()
        self._status: Status | None = None
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def step(self, text: str) -> None:
        """What is being done now."""
        if text == self._last:
            return
        self._last = text
        if not self._console.is_terminal:
            self._console.print(f"… {text}", markup=False)
        elif self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def clear(self) -> None:
        """Take the changing line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def log(self, line: str) -> None:
        """A line that a process has logged: warnings and errors are shown, and whatever is no structured log."""
        if self._logs or (text := _readable(line)) is None:
            text = line if self._logs else None
        if text:
            self._console.print(text, markup=False)

    def follow(self, pod: Child, ports: Ports, model: str, folder: Path) -> None:
        """Watch the pod until it is ready, and say how to ask it; return at once when it has ended."""
        self.step("loading")
        while pod.running:
            report = _report(ports)
            if report is None or report.model != model:
                pass
            elif report.phase is Phase.WARMING:
                self.step(_warming(report) if self._console.is_terminal else f"warming {report.buckets.total} buckets")
            elif report.phase is Phase.READY:
                self.clear()
                self._ready(report, ports, folder)
                return
            elif report.phase in (Phase.FAILED, Phase.DRAINING):
                break
            time.sleep(POLL_SECONDS)
        self.clear()

    def _ready(self, report: Report, ports: Ports, folder: Path) -> None:
        model, url = report.model, ports.url
        took = time.monotonic() - self._began
        self._console.print(
            f"[bold green]ready[/] in {took:.1f} s: model {model}, {report.buckets.warm} buckets warm, "
            f"largest run {max((cost.seconds for cost in report.buckets.costs), default=0) * 1e3:.1f} ms"
        )
        for what, where in (
            ("infer", f"POST {url}/v2/models/{model}/infer"),
            ("gRPC", f"{ports.grpc_address}   (Open Inference Protocol v2)"),
            ("docs", f"{url}/docs"),
            ("metrics", f"{ports.admin_url}/metrics   report: {ports.admin_url}/report"),
            ("knobs", f"{folder / 'knobs.json'}   (hot: edit it while this serves)"),
        ):
            self._console.print(f"  {what:<8} {where}", markup=False)
        example = _example(ports, model)
        if example is not None:
            self._console.print(f"\n{example}\n", markup=False)
        admin = "" if ports.admin == 8081 else f" --admin-url {ports.admin_url}"
        self._console.print(f"  measure  headway bench --url {url}{admin}", markup=False)
        self._console.print("Ctrl-C ends it.")


def _warming(report: Report) -> str:
    buckets = report.buckets
    next_ = min(buckets.warm + 1, buckets.total)
    if not buckets.costs:
        return f"warming: bucket {next_} of {buckets.total}"
    latest = buckets.costs[-1]
    sizes = ", ".join(f"{name} {size}" for name, size in latest.sizes.items())
    return (
        f"warming: bucket {next_} of {buckets.total} (the last one, {sizes or 'fixed'}: {latest.seconds * 1e3:.1f} ms)"
    )


def _report(ports: Ports) -> Report | None:
    try:
        return Report.model_validate(fetch_json(f"{ports.admin_url}/report", seconds=2))
    except BenchError:
        return None


def _example(ports: Ports, model: str) -> str | None:
    """A command that asks for one answer; None when the smallest request is too long to paste."""
    try:
        metadata = fetch_json(f"{ports.url}/v2/models/{model}", seconds=2)
        info = from_metadata(metadata, [])
        sizes = {name: Distribution(1, 1) if name == info.batch else Distribution(3, 3) for name in info.dimensions}
        body = json_body(info, Maker(info, sizes, {}).smallest()).content.decode()
    except (BenchError, KeyError):
        return None
    if len(body) > LONGEST_EXAMPLE:
        return None
    quoted = body.replace("'", "'\\''")
    return f"curl -s {ports.url}/v2/models/{model}/infer -H 'content-type: application/json' -d '{quoted}'"


def _readable(line: str) -> str | None:
    """A structured log line as text, None when it is below a warning; other lines as they are."""
    try:
        fields: Any = json.loads(line)
        event, level = fields.pop("event"), fields.pop("level", "info")  # the prepare step's lines have no level
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    fields.pop("time", None)
    if level == "info" or event == "refused":  # the refusal is said as such, at the end
        return None
    traceback = fields.pop("traceback", "")
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{level}: {event} {told}" + (f"\n{traceback}" if traceback else "")
