"""What `headway serve` tells its user: how far the pod has come, and, once it is ready, how to ask it."""

import json
import time
from pathlib import Path
from typing import Any, Self

from headway_api.names import ADMIN_PORT, CONFIG_KEY, KNOBS_KEY
from headway_api.podconfig import ColdConfig, Knobs, Phase, Report
from headway_api.types import Precision
from rich.console import Console
from rich.status import Status

from headway_runtime.bench.encode import json_body
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import fetch_json
from headway_runtime.bench.inputs import Maker
from headway_runtime.bench.model import from_metadata
from headway_runtime.bench.sizes import Distribution
from headway_runtime.cli.serve_words import asking, computing, in_force, in_words, room, structured
from headway_runtime.local import Child, Ports
from headway_runtime.prepare import decoding, programs, repack

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
        self._knobs: tuple[dict[str, Any], list[str]] | None = None  # once ready: in force, and why not as asked

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
        """A line that a process has logged: warnings and errors are shown, whatever is no structured log, and what came
        of the user's knobs.
        """
        text = line if self._logs else self._told(line)
        if text:
            self._console.print(text, markup=False)

    def _told(self, line: str) -> str | None:
        fields = structured(line)
        if fields is None:
            return line
        if fields["event"] == "knobs_applied":
            before, now = self._knobs, (fields["effective"], fields["clamped"])
            if before is None or before == now:
                return None
            self._knobs = now
            return in_force(*now, before[0])
        return in_words(fields)

    def follow(self, pod: Child, ports: Ports, config: ColdConfig, folder: Path) -> None:
        """Watch the pod until it is ready, and say how to ask it; return at once when it has ended."""
        self.step("loading")
        while pod.running:
            report = _report(ports)
            if report is None or report.revision != config.revision:  # of another process
                pass
            elif report.phase is Phase.WARMING:
                self.step(_warming(report) if self._console.is_terminal else f"warming {report.buckets.total} buckets")
            elif report.phase is Phase.READY:
                self.clear()
                self._knobs = report.knobs.effective, [clamp.message for clamp in report.knobs.clamped]
                write_max_batch(folder / KNOBS_KEY, report)
                self._ready(report, ports, folder)
                return
            elif report.phase in (Phase.FAILED, Phase.DRAINING):
                break
            time.sleep(POLL_SECONDS)
        self.clear()

    def _ready(self, report: Report, ports: Ports, folder: Path) -> None:
        model, url, generation = report.model, ports.url, report.generation
        took = time.monotonic() - self._began
        slowest = max((cost.seconds for cost in report.buckets.costs), default=0) * 1e3
        self._console.print(
            f"[bold green]ready[/] in {took:.1f} s: model {model}, {report.buckets.warm} "
            f"{'buckets' if generation is None else 'steps'} warm, largest run {slowest:.1f} ms"
        )
        if generation is None:
            routes = [("infer", f"POST {url}/v2/models/{model}/infer")]
            routes.append(("gRPC", f"{ports.grpc_address}   (Open Inference Protocol v2)"))
            example = _example(ports, model)
        else:
            client, example = asking(url, model, chats=_chats(folder))
            routes = [("text", f"POST {url}/v1/chat/completions, {url}/v1/completions"), client]
            routes.append(("gRPC", f"{ports.grpc_address}   (Triton's text streams)"))
            routes.append(("memory", room(generation)))
            routes.append(("kernels", computing(generation, report.precision)))
        if report.parity is not None and report.precision not in (None, Precision.EXPORTED):
            routes.append(("weights", report.parity.message))
        for what, where in (
            *routes,
            ("docs", f"{url}/docs"),
            ("metrics", f"{ports.admin_url}/metrics   report: {ports.admin_url}/report"),
            ("knobs", f"{folder / 'knobs.json'}   (hot: edit it while this serves)"),
        ):
            self._console.print(f"  {what:<8} {where}", markup=False)
        if self._knobs is not None:
            self._console.print(f"  {in_force(*self._knobs, self._knobs[0])}", markup=False)
        if example is not None:
            self._console.print(f"\n{example}\n", markup=False)
        admin = "" if ports.admin == ADMIN_PORT else f" --admin-url {ports.admin_url}"
        self._console.print(f"  measure  headway bench {url}{admin}", markup=False)
        self._console.print("Ctrl-C ends it.")


def write_max_batch(file: Path, report: Report) -> None:
    """Name the largest run that is in force in a knobs file that leaves it open, for whoever edits the file. With a
    latency target it stays open: what fits into the target changes with it.
    """
    knobs = Knobs.model_validate_json(file.read_text())
    if knobs.max_batch is None and knobs.latency_target is None:
        part = file.with_suffix(".part")
        part.write_text(knobs.model_copy(update={"max_batch": report.knobs.effective["maxBatch"]}).to_json())
        part.replace(file)


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


def _chats(folder: Path) -> bool:
    """Whether the prepared program has a template for conversations."""
    directory = folder / "model"
    name = programs.choose(repack.program_names(directory), _program(folder))
    document = json.loads(repack.program_file(directory, name).read_bytes())
    return decoding.read(document)[1].chat_template is not None


def _program(folder: Path) -> str | None:
    return ColdConfig.model_validate_json((folder / CONFIG_KEY).read_bytes()).artifact.program


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
