"""`headway bench`."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway_runtime.bench.sizes import Distribution
    from headway_runtime.bench.target import Target
    from headway_runtime.cli.serve_progress import Progress


WIDTH = 132  # of tables where there is no terminal to say


def bench(
    file: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, help="a .pt2, served here while it is measured")
    ] = None,
    url: Annotated[str | None, typer.Option(help="or a served model, such as http://127.0.0.1:8080")] = None,
    model: Annotated[str | None, typer.Option(help="its name; known from the admin port")] = None,
    admin_url: Annotated[str | None, typer.Option(help="the pod's report; port 8081 of the same host")] = None,
    manifest: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="with FILE: a ModelDeployment, for its batching")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600, help="of each measurement")] = 5.0,
    connections: Annotated[
        list[int] | None, typer.Option(min=1, max=900, help="closed loop [default: 1 and 16]")
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(help="open loop, requests/s [default: 1/3 and 0.8 of the most]")
    ] = None,
    latency_target: Annotated[
        str | None, typer.Option(help="find the highest rate whose p99 is within, such as 50ms")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option(help="sequence=64, sequence=8..128, or sequence=8..128~30 with mean 30")
    ] = None,
    range_: Annotated[
        list[str] | None, typer.Option("--range", help="values of an integer input, such as ids=0..30521")
    ] = None,
    samples: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="requests, in an .npz")] = None,
    binary: Annotated[bool, typer.Option("--binary", help="tensors in binary, not JSON")] = False,
    verify: Annotated[bool, typer.Option(help="with FILE: set the advised knobs and measure again")] = True,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="draw cost curve and latencies: .svg .png .pdf")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs: docs/bench.md")] = False,
) -> None:
    """Measure a served model, and say what to set.

    Give a .pt2, which is served for the purpose, or --url. Closed loops find what it can do, open loops how long users
    wait; the pod's cost curve then says which maxBatch, maxWait and shapeBuckets fit. docs/bench.md explains it.

    Exit code 0: measured. 1: it could not be. 2: the command was not understood.
    """
    from rich.console import Console

    from headway_runtime.bench.errors import BenchError
    from headway_runtime.bench.plot import check_plot
    from headway_runtime.bench.plot import plot as draw
    from headway_runtime.bench.report import show
    from headway_runtime.bench.session import Plan, Session
    from headway_runtime.cli.serve_progress import Progress
    from headway_runtime.local import Interrupted, LocalError

    if (file is None) == (url is None):
        raise typer.BadParameter("give either a .pt2 or --url")
    progress = Progress(logs=False)
    try:
        if plot is not None:
            check_plot(plot)
        plan = Plan(
            seconds=seconds,
            connections=tuple(connections or (1, 16)),
            rates=tuple(rate or ()),
            latency_target=_duration(latency_target),
            sizes=_sizes(sizes or []),
            ranges=dict(map(_range, range_ or [])),
            samples=samples,
            binary=binary,
            verify=verify,
        )
        with progress, _target(file, url, model, admin_url, manifest, progress) as target:
            results = Session(target, plan, progress.step).run()
        if plot is not None:
            draw(results, plot)
    except Interrupted:
        raise typer.Exit(130) from None
    except (BenchError, LocalError) as error:
        typer.echo(f"headway: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(results.to_dict(), indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        if not console.is_terminal:
            console.width = WIDTH
        show(results, console)


@contextlib.contextmanager
def _target(
    file: Path | None,
    url: str | None,
    model: str | None,
    admin_url: str | None,
    manifest: Path | None,
    progress: "Progress",
) -> Iterator["Target"]:
    from headway_runtime.bench.target import at_url, served

    if file is None:
        assert url is not None
        yield at_url(url, admin_url=admin_url, model=model)
    else:
        with served(file, manifest, say=progress.step, log=progress.log) as target:
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
