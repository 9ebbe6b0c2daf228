"""The results for people: compact tables, and a manifest's fields to paste, each with its reason."""

import math
from collections.abc import Iterator

from headway_api.units import format_duration
from rich.console import Console
from rich.table import Table

from headway_runtime.bench.results import Measurement, Results, errors


def show(results: Results, console: Console) -> None:
    """Print everything."""
    made = ", ".join(f"{name} {sizes}" for name, sizes in results.sizes.items()) or "as given"
    ranges = "".join(f"; {name} {least} to {most}" for name, (least, most) in results.ranges.items())
    form = "binary tensors" if results.binary else "JSON"
    weights = "" if results.precision is None else f"; weights {results.precision.value}"
    console.print(f"[bold]{results.model}[/] at {results.url}{weights}; requests in {form}: {made}{ranges}")
    console.print(_measured(results))
    if results.at_target is not None:
        target = format_duration(results.at_target.target)
        found = results.at_target.rate
        rate = "no rate that was tried" if found is None else f"[bold]{found:.4g} requests/s[/] at most"
        console.print(f"99 of 100 answered within {target}: {rate} ({len(results.at_target.tried)} rates tried)")
    if results.costs is not None:
        console.print(_curves(results))
    if results.advised is not None:
        console.print(_candidates(results))
        if results.doubt is not None:
            console.print(f"[bold red]doubtful[/] {results.doubt}")
        console.print(f"[bold]{results.advised.reason.value}[/]. To set:\n")
        console.print("\n".join(snippet(results)), markup=False)
        console.print()
    if results.pod_says is not None:
        said = results.pod_says
        console.print(f"the pod itself, of its last minutes: {said.reason.value}: {said.message}", markup=False)
    for warning in results.warnings:
        console.print(f"[yellow]note[/] {warning}")


def snippet(results: Results) -> Iterator[str]:
    """The lines of a manifest, with the reasons as comments."""
    advised, now = results.advised, results.now
    assert advised is not None
    assert now is not None
    wait = format_duration(advised.setting.max_wait) if advised.setting.max_wait else "0ms"
    for why in advised.why:
        yield f"# {why}"
    yield "spec:"
    yield "  batching:"
    yield f"    maxBatch: {advised.setting.max_batch} # hot; now {now.max_batch}"
    yield f"    maxWait: {wait} # hot; now {format_duration(now.max_wait)}"
    if results.at_target is not None:
        run = format_duration(max(0.001, results.at_target.target / 2))
        yield f"    # or, instead of maxBatch, what fits into a run at any size: latencyTarget: {run}"
    if advised.buckets:
        yield f"    shapeBuckets: # cold: new pods{'' if advised.changes_buckets else '; as now'}"
        for name, sizes in advised.buckets.items():
            yield f"      {name}: [{', '.join(map(str, sizes))}]"


def _measured(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("load", "offered/s", "good/s", "p50 ms", "p90", "p99", "p99.9", "batch", "CPU µs/req", "errors"):
        table.add_column(name, justify="left" if name in ("load", "errors") else "right", no_wrap=name != "errors")
    for each in [*results.measurements, *results.verified]:
        table.add_row(*_row(each))
    return table


def _row(each: Measurement) -> tuple[str, ...]:
    summary, samples = each.summary, each.samples
    offered = "" if each.rate is None else f"{each.rate:.4g}"
    last = milliseconds(summary.p999) if summary.supports_p999 else "-"
    cpu = each.cpu_per_request
    failed = ", ".join(f"{count}x {kind}" for kind, count in errors(samples).items())
    return (
        each.label,
        offered,
        f"{samples.throughput:.4g}",
        milliseconds(summary.p50),
        milliseconds(summary.p90),
        milliseconds(summary.p99),
        last,
        "-" if samples.mean_batch is None else f"{samples.mean_batch:.1f}",
        "-" if cpu is None else f"{cpu * 1e6:.0f}",
        failed or "none",
    )


def _curves(results: Results) -> Table:
    assert results.costs is not None
    table = Table(
        box=None,
        pad_edge=False,
        header_style="dim",
        title="cost of a run, measured while warming",
        title_justify="left",
    )
    rows = sorted({point.rows for curve in results.costs.curves for point in curve.points})
    table.add_column("sizes")
    table.add_column("fixed ms", justify="right")
    table.add_column("+ per row", justify="right")
    for count in rows:
        table.add_column(f"{count}", justify="right")
    for curve in results.costs.curves:
        at = {point.rows: f"{point.seconds * 1e3:.3g}" for point in curve.points}
        sizes = ", ".join(f"{name} {size}" for name, size in curve.sizes.items()) or "all"
        fitted = (f"{curve.fixed * 1e3:.3g}", f"{curve.per_row * 1e3:.3g}")
        table.add_row(sizes, *fitted, *(at.get(count, "-") for count in rows))
    return table


def _candidates(results: Results) -> Table:
    assert results.advised is not None
    assert results.now is not None
    title = "maxBatch, at the sizes that come"
    table = Table(box=None, pad_edge=False, header_style="dim", title=title, title_justify="left")
    for name in ("maxBatch", "a run ms", "two runs ms", "rows/s at most", "cost of a row", ""):
        table.add_column(name, justify="right")
    for each in results.advised.candidates:
        marks = ("advised" if each.max_batch == results.advised.setting.max_batch else "") + (
            " now" if each.max_batch == results.now.max_batch else ""
        )
        table.add_row(
            str(each.max_batch),
            f"{each.run * 1e3:.3g}",
            f"{each.latency * 1e3:.3g}",
            f"{each.rows_per_second:.4g}",
            f"x {each.cost:.2f}",
            marks.strip(),
        )
    return table


def milliseconds(seconds: float) -> str:
    """Three digits of it; `-` where there is none."""
    return "-" if math.isnan(seconds) else "∞" if math.isinf(seconds) else f"{seconds * 1e3:.3g}"
