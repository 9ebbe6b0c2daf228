"""`headway bench`."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from headway_api.types import Precision

from headway_runtime.cli.arguments import exported, precision_option, told

if TYPE_CHECKING:
    from headway_runtime.bench.sizes import Distribution
    from headway_runtime.bench.target import Target
    from headway_runtime.cli.serve_progress import Progress


_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}(/\S*)?\Z")
WIDTH = 132  # of tables where there is no terminal to say


def option(metavar: str, text: str, *names: str, **limits: Any) -> Any:
    """An option whose values are shown as `metavar` in the help."""
    return typer.Option(*names, metavar=metavar, help=text, **limits)


def file_option(text: str) -> Any:
    """An option that names a file, which must be there."""
    return option("FILE", text, exists=True, dir_okay=False)


def bench(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|URL", help="a .pt2, served here while it is measured, or the URL of a served model"
        ),
    ] = None,
    url: Annotated[str | None, option("URL", "a served model: http://127.0.0.1:8080")] = None,
    model: Annotated[str | None, option("NAME", "its name; known from the admin port")] = None,
    admin_url: Annotated[str | None, option("URL", "its pod's report; port 8081 of the same host")] = None,
    manifest: Annotated[Path | None, file_option("with a .pt2: a ModelDeployment, for its batching")] = None,
    precision: Annotated[
        Precision | None,
        precision_option("with a .pt2: in which large weights are kept; else as the manifest says"),
    ] = None,
    seconds: Annotated[float, option("SECONDS", "of each measurement", min=0.2, max=3600)] = 5.0,
    connections: Annotated[
        list[int] | None, option("N", "clients of a closed loop; 1 and 16; of text 1, 4 and 16", min=1, max=900)
    ] = None,
    rate: Annotated[list[float] | None, option("RATE", "requests/s of an open loop; 1/3 and 0.8 of the most")] = None,
    latency_target: Annotated[str | None, option("TIME", "find the highest rate whose p99 is within, as 50ms")] = None,
    sizes: Annotated[
        list[str] | None,
        option("NAME=SIZES", "sequence=64, =8..128, or =8..128~30 (mean 30); of text prompt.words and answer"),
    ] = None,
    range_: Annotated[list[str] | None, option("NAME=VALUES", "of an integer input: ids=0..30521", "--range")] = None,
    samples: Annotated[Path | None, file_option("requests, in an .npz")] = None,
    binary: Annotated[bool, typer.Option("--binary", help="tensors in binary, not JSON")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="with a .pt2: do not try what is advised")] = False,
    plot: Annotated[Path | None, option("FILE", "draw cost curve and latencies: .svg .png .pdf")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs: docs/bench.md")] = False,
) -> None:
    """Measure a served model, and say what to set.

    Give a .pt2, which is served for the purpose, or a URL. Closed loops find what it can do, open loops how long users
    wait; the pod's cost curve then says which maxBatch, maxWait and shapeBuckets fit. Of a model that generates text:
    the time to the first token and between tokens, and tokens/s, by clients. docs/bench.md explains it.

    Exit code 0: measured. 1: it could not be. 2: the command was not understood.
    """
    from rich.console import Console

    from headway_runtime.bench.errors import BenchError
    from headway_runtime.bench.plan import Plan
    from headway_runtime.bench.plot import check_plot
    from headway_runtime.bench.plot import plot as draw
    from headway_runtime.bench.report import show
    from headway_runtime.bench.results import Results
    from headway_runtime.bench.session import Session
    from headway_runtime.bench.text_report import show_text
    from headway_runtime.bench.text_results import TextResults
    from headway_runtime.bench.text_session import TextSession
    from headway_runtime.cli.serve_progress import Progress
    from headway_runtime.local import Interrupted, LocalError

    if (source is None) == (url is None):
        raise typer.BadParameter("give one FILE, a .pt2, or the URL of a served model: headway bench FILE|URL")
    file = None
    if source is not None and source.startswith(("http://", "https://")):
        url = source
    elif source is not None:
        if _ADDRESS.match(source) and not Path(source).exists():
            raise typer.BadParameter(f"there is no file {source}; for a served model write http://{source}")
        file = exported(Path(source))
    if file is None and precision is not None:
        raise typer.BadParameter("--precision is for a .pt2, which is served here; a served model has one")
    progress = Progress(logs=False)
    try:
        if plot is not None:
            check_plot(plot)
        plan = Plan(
            seconds=seconds,
            connections=tuple(connections or ()),
            rates=tuple(rate or ()),
            latency_target=_duration(latency_target),
            sizes=_sizes(sizes or []),
            ranges=dict(map(_range, range_ or [])),
            samples=samples,
            binary=binary,
            verify=not no_verify,
        )
        with progress, _target(file, url, model, admin_url, manifest, precision, plan.sizes, progress) as target:
            results: Results | TextResults
            if target.generates:
                if plot is not None:
                    raise BenchError(
                        "--plot draws models that compute tensors, and this one generates text; leave it out"
                    )
                results = TextSession(target, plan, progress.step).run()
            else:
                results = Session(target, plan, progress.step).run()
        if plot is not None and isinstance(results, Results):
            draw(results, plot)
    except Interrupted:
        raise typer.Exit(130) from None
    except (BenchError, LocalError) as error:
        typer.echo(f"headway: {told(error, precision)}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(results.to_dict(), indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        if not console.is_terminal:
            console.width = WIDTH
        show_text(results, console) if isinstance(results, TextResults) else show(results, console)


@contextlib.contextmanager
def _target(
    file: Path | None,
    url: str | None,
    model: str | None,
    admin_url: str | None,
    manifest: Path | None,
    precision: Precision | None,
    sizes: "Mapping[str, Distribution]",
    progress: "Progress",
) -> Iterator["Target"]:
    from headway_runtime.bench.target import at_url, served

    if file is None:
        assert url is not None
        yield at_url(url, admin_url=admin_url, model=model)
    else:
        with served(file, manifest, precision=precision, sizes=sizes, say=progress.step, log=progress.log) as target:
            yield target


def _duration(text: str | None) -> float | None:
    from headway_api.units import parse_duration

    try:
        return None if text is None else parse_duration(text, "--latency-target")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _sizes(texts: list[str]) -> "dict[str, Distribution]":
    from headway_runtime.bench.sizes import parse_sizes

    return dict(map(parse_sizes, texts))


def _range(text: str) -> tuple[str, tuple[int, int]]:
    name, _, bounds = text.partition("=")
    least, _, most = bounds.partition("..")
    try:
        found = int(least), int(most or least)
    except ValueError:
        raise typer.BadParameter(f"--range {text}: write INPUT=LEAST..MOST, such as ids=0..30521") from None
    if not name or found[0] > found[1]:
        raise typer.BadParameter(f"--range {text}: write INPUT=LEAST..MOST, such as ids=0..30521")
    return name, found
