"""The cost curve and the latencies as a picture: SVG, PNG or PDF, by matplotlib (the extra `bench`)."""

from pathlib import Path
from typing import Any

from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.results import Results
from headway_runtime.bench.statistics import cumulative

NINES = (0.5, 0.9, 0.99, 0.999)
MISSING = "--plot needs matplotlib, which is not installed: pip install '.[bench]', in a clone of Headway"


def check_plot(file: Path) -> None:
    """Say before anything is measured that a plot cannot be drawn. Raises BenchError."""
    _matplotlib()
    if file.suffix not in (".svg", ".png", ".pdf"):
        raise BenchError(f"--plot {file}: the name must end with .svg, .png or .pdf")
    if not file.resolve().parent.is_dir():
        raise BenchError(f"--plot {file}: there is no such folder")


def plot(results: Results, file: Path) -> None:
    """Write the picture."""
    _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = 2 if results.costs is not None else 1
    figure = Figure(figsize=(6.4 * panels, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _latencies(axes[0], results)
    if results.costs is not None:
        _costs(axes[1], results)
    figure.suptitle(f"{results.model} at {results.url}")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _latencies(axis: Any, results: Results) -> None:
    for each in [*results.measurements, *results.verified]:
        latencies, shares = cumulative(each.samples.latencies)
        if latencies:
            rate = f"{each.samples.throughput:.4g}/s"
            # nothing is beyond the greatest: it stands half a request before 1
            beyond = [max(1 - share, 0.5 / len(each.samples.latencies)) for share in shares]
            axis.plot(
                [1 / left for left in beyond], [seconds * 1e3 for seconds in latencies], label=f"{each.label}: {rate}"
            )
    axis.set(xscale="log", yscale="log", xlabel="percentile", ylabel="latency, ms", title="latency of good answers")
    axis.set_xticks([1 / (1 - nine) for nine in NINES], [f"{nine * 100:g} %" for nine in NINES])
    axis.minorticks_off()
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize="small")


def _costs(axis: Any, results: Results) -> None:
    assert results.costs is not None
    for curve in results.costs.curves:
        rows = [point.rows for point in curve.points]
        name = ", ".join(f"{name} {size}" for name, size in curve.sizes.items()) or "all sizes fixed"
        line = axis.plot(rows, [p.seconds / p.rows * 1e3 for p in curve.points], "o", label=name, markersize=4)[0]
        fitted = [(curve.fixed + curve.per_row * count) / count * 1e3 for count in rows]
        axis.plot(rows, fitted, color=line.get_color(), linewidth=1)
    if results.advised is not None and results.now is not None:
        axis.axvline(results.now.max_batch, color="grey", linestyle=":", label=f"maxBatch now: {results.now.max_batch}")
        advised = results.advised.setting.max_batch
        axis.axvline(advised, color="black", linestyle="--", linewidth=1, label=f"advised: {advised}")
    ticks = sorted({point.rows for curve in results.costs.curves for point in curve.points})
    axis.set(xscale="log", yscale="log", xlabel="rows in a run", ylabel="ms of a run for each row", title="cost curve")
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize="small")


def _matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise BenchError(MISSING) from None
