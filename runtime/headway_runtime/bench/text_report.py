"""The results of a text model for people: one table, and what the pod has room for."""

from rich.console import Console
from rich.table import Table

from headway_runtime.bench.report import milliseconds
from headway_runtime.bench.text_results import REJECTED, TextMeasurement, TextResults
from headway_runtime.prepare.room import readable

COLUMNS = ("load", "answers/s", "tokens/s", "first ms p50", "p99", "next ms p50", "p99", "CPU ms/token", "rejected")


def show_text(results: TextResults, console: Console) -> None:
    """Print everything."""
    made = ", ".join(f"{name} {sizes}" for name, sizes in results.sizes.items())
    weights = "" if results.precision is None else f"; weights {results.precision.value}"
    console.print(f"[bold]{results.model}[/] at {results.url}, which generates text; {made}{weights}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (*COLUMNS, "errors"):
        table.add_column(name, justify="left" if name in ("load", "errors") else "right", no_wrap=name != "errors")
    for each in results.measurements:
        table.add_row(*_row(each))
    console.print(table)
    room = results.room
    if room is not None:
        said = f"room for {room.sequences} sequences of {room.max_length} tokens at a time"
        if room.length_p99 is not None and room.sequences_p99 is not None:
            said += f", or for {room.sequences_p99} of {room.length_p99}, the length that 99 of 100 kept to lately"
        console.print(f"{said} ({readable(room.cache_bytes)} of keys and values)")
    for warning in results.warnings:
        console.print(f"[yellow]note[/] {warning}")


def _row(each: TextMeasurement) -> tuple[str, ...]:
    cpu = each.cpu_per_token
    other = {kind: count for kind, count in each.errors.items() if kind not in map(str, REJECTED)}
    return (
        each.label,
        f"{each.answers_per_second:.3g}",
        f"{each.tokens_per_second:.4g}",
        milliseconds(each.first.p50),
        milliseconds(each.first.p99),
        milliseconds(each.between.p50),
        milliseconds(each.between.p99),
        "-" if cpu is None else f"{cpu * 1e3:.3g}",
        str(each.rejected or "none"),
        ", ".join(f"{count}x {kind}" for kind, count in other.items()) or "none",
    )
