"""What the safe path of an artifact costs, beside torch's own. By hand: `python tests/bench/bench_artifact.py`.

Writes an archive of 500 MB (few large and many small weights) and a program of 2,000 nodes with `torch.export.save`,
then measures in fresh processes, one after the other, alternating between ours and torch's:

- prepare: inspection in its own process, and repack. Private memory: the peak of RssAnon of both processes together,
  sampled every 5 ms from outside.
- load: `load_program` against `torch.export.load(...).module()`, after the imports of either. Private memory: by how
  much RssAnon grew.
- gate: the shape gate at the largest and the smallest bucket.

Prints JSON and a table: median and range over rounds. A machine that is busy shows in seconds by the clock; CPU seconds
are user and system time of the process and its children.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.005
Figures = dict[str, float]


def write_archives(folder: Path, megabytes: int, nodes: int) -> None:
    """`large.pt2` and `many.pt2`."""
    import torch

    class Large(torch.nn.Module):
        """ids [batch, 8] -> scores [batch, 8, 128]: one embedding of half the bytes, small layers for the rest."""

        def __init__(self, small: int = 512) -> None:
            super().__init__()
            rows = megabytes * 10**6 // 2 // (128 * 4)
            self.words = torch.nn.Embedding(rows, 128)
            wide = megabytes * 10**6 // 2 // (small * 4 * 128 * 2)
            self.layers = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(128, wide), torch.nn.ReLU(), torch.nn.Linear(wide, 128))
                for _ in range(small)
            )

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x: torch.Tensor = self.words(ids)
            for layer in self.layers:
                x = x + layer(x)
            return x

    class Many(torch.nn.Module):
        """x [batch, 64] -> y [batch, 64]: a fifth of the nodes are layers with weights."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(nodes // 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = (torch.relu(layer(x)) + x).sigmoid() * 2
            return x

    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        for name, module, example in (
            ("large", Large(), torch.zeros(2, 8, dtype=torch.int64)),
            ("many", Many(), torch.zeros(2, 64)),
        ):
            program = torch.export.export(module.eval(), (example,), dynamic_shapes=({0: batch},))
            torch.export.save(program, folder / f"{name}.pt2")


def private() -> int:
    """Bytes of memory of its own that this process has."""
    return rss_anon(os.getpid())


def rss_anon(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], Any]) -> Figures:
    before, began, used = private(), time.perf_counter(), cpu()
    kept = work()
    figures = {"seconds": time.perf_counter() - began, "cpu": cpu() - used, "mb": (private() - before) / 1e6}
    del kept
    return figures


def work_prepare(file: Path, target: Path) -> Figures:
    from headway_runtime.prepare import repack
    from headway_runtime.prepare.isolate import inspect_isolated

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    return timed(lambda: repack.repack(inspect_isolated(file), file, target))


def work_ours(_: Path, target: Path) -> Figures:
    from headway_runtime.program import load_program

    return timed(lambda: load_program(target, dimension_names={}))


def work_torch(file: Path, _: Path) -> Figures:
    import logging

    import torch
    import torch._export.serde.serialize  # so that the time is that of loading

    logging.disable(logging.WARNING)
    return timed(lambda: torch.export.load(file).module())


def work_gate(_: Path, target: Path) -> Figures:
    from headway_runtime.buckets import resolve_buckets
    from headway_runtime.program import load_program
    from headway_runtime.program.load import read_document
    from headway_runtime.program.shape_gate import ShapeGate, worth_measuring

    program = load_program(target, dimension_names={})
    chosen = worth_measuring(resolve_buckets(program, None).combinations)

    def gate() -> ShapeGate:
        made = ShapeGate(read_document(target)[1], program)
        for sizes in chosen:
            made.measure(sizes)
        return made

    return timed(gate)


WORK = {"prepare": work_prepare, "ours": work_ours, "torch": work_torch, "gate": work_gate}


def children(pid: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def run(what: str, file: Path, target: Path) -> Figures:
    """One measurement in a fresh process; `peak_mb` is the most that it and its children had at once."""
    command = [sys.executable, "-W", "ignore", __file__, "--work", what, str(file), str(target)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(rss_anon(pid) for pid in (process.pid, *children(process.pid))))
        time.sleep(SAMPLE_SECONDS)
    assert process.stdout is not None
    figures: Figures = json.loads(process.stdout.read())
    assert process.returncode == 0
    return {**figures, "peak_mb": peak / 1e6}


def measure(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Median, least and greatest of every figure of each kind of work."""
    plan = [("prepare", "large"), ("ours", "large"), ("torch", "large")]
    plan += [("prepare", "many"), ("ours", "many"), ("torch", "many"), ("gate", "many")]
    found: dict[tuple[str, str], list[Figures]] = {key: [] for key in plan}
    for _ in range(rounds):
        for what, name in plan:
            found[what, name].append(run(what, folder / f"{name}.pt2", folder / name))
    return [
        {
            "work": what,
            "archive": name,
            **{k: [round(f(r[k] for r in figures), 3) for f in (median, min, max)] for k in figures[0]},
        }
        for (what, name), figures in found.items()
    ]


def median(values: Any) -> float:
    return statistics.median(list(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--work", nargs=3, metavar=("WHAT", "FILE", "TARGET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        what, file, target = options.work
        print(json.dumps(WORK[what](Path(file), Path(target))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_archives(folder, options.megabytes, options.nodes)
        sizes = {file.stem: file.stat().st_size for file in folder.glob("*.pt2")}
        results = measure(folder, options.rounds)
    print(json.dumps({"bytes": sizes, "results": results}))
    print(f"{'work':>8} {'archive':>8} {'seconds':>22} {'CPU seconds':>22} {'private MB':>24} {'peak private MB':>24}")
    for r in results:
        cells = [f"{r[k][0]:.2f} ({r[k][1]:.2f}-{r[k][2]:.2f})" for k in ("seconds", "cpu", "mb", "peak_mb")]
        print(f"{r['work']:>8} {r['archive']:>8} {cells[0]:>22} {cells[1]:>22} {cells[2]:>24} {cells[3]:>24}")
    by_work = {(r["work"], r["archive"]): r for r in results}
    ours, theirs = by_work["ours", "large"], by_work["torch", "large"]
    print(f"load, ours over torch's: {ours['seconds'][0] / theirs['seconds'][0]:.2f} by the clock")


if __name__ == "__main__":
    main()
