"""Native code against the register machine, per run: CPU and wall time, and memory. By hand: `python
tests/bench/bench_native.py`.

Three models: a small MLP (128 floats), a small convolutional net, and MiniLM (the examples' sentence encoder). Each is
compiled, signed, prepared as in a pod, and run by one thread in one process, in rounds that alternate between the two.
Prints medians and ranges over the rounds, whether answers agree, and what loading costs of private memory. Compiling
takes about a quarter of a minute for the small ones and a minute for MiniLM.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from headway_runtime.native import build
from headway_runtime.prepare import run
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.program import Program, load_program
from torch.export import Dim

from examples.minilm import export as minilm
from tests.bench.models import Mlp
from tests.unit.signing_keys import public

BATCH = Dim("batch", min=1, max=64)
BUILDER = keys.generate()


class Convolutional(torch.nn.Module):
    """x [batch, 3, 64, 64] -> y [batch, 10]: three convolutions with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for inner, outer, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2)):
            layers += [torch.nn.Conv2d(inner, outer, 3, stride, 1), torch.nn.BatchNorm2d(outer), torch.nn.ReLU()]
        self.features = torch.nn.Sequential(*layers)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.features(x).mean((2, 3)))
        return result


def export_module(module: torch.nn.Module, example: torch.Tensor, path: Path) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), (example,), dynamic_shapes=({0: BATCH},)), path)


def words(batch: int, sequence: int) -> list[torch.Tensor]:
    ids = torch.randint(1000, 20_000, (batch, sequence))
    return [ids, torch.ones_like(ids)]


def tables() -> dict[str, tuple[Callable[[Path], None], dict[str, list[torch.Tensor]]]]:
    """Models by name: how each is exported, and the inputs it is run with."""
    return {
        "mlp": (
            lambda path: export_module(Mlp(), torch.zeros(5, 128), path),
            {f"batch {n}": [torch.randn(n, 128)] for n in (1, 8, 64)},
        ),
        "conv": (
            lambda path: export_module(Convolutional(), torch.zeros(5, 3, 64, 64), path),
            {f"batch {n}": [torch.randn(n, 3, 64, 64)] for n in (1, 8, 32)},
        ),
        "minilm": (
            lambda path: minilm.export(1, path),
            {f"batch {b}, sequence {s}": words(b, s) for b, s in ((1, 16), (8, 32), (32, 64))},
        ),
    }


def prepare(artifact: Path, target: Path) -> Path:
    """What the prepare container does, with the builder's key trusted."""
    trust = Trust(builders=(public(BUILDER),))
    run.prepare(artifact.as_uri(), target, pinned=None, credentials=Path("/nonexistent"), trust=trust)
    return target


def private_bytes() -> int:
    """Memory that this process has written to, and so shares with no other."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1024


def loading_cost(directory: Path) -> dict[str, float]:
    """In a fresh process: MB of private memory and seconds of CPU time of loading and one run of the smallest sizes."""
    command = [sys.executable, __file__, "--load", str(directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return dict(json.loads(done.stdout))


def load_and_measure(directory: Path) -> None:
    torch.set_num_threads(1)
    torch.ones(8, 8) @ torch.ones(8, 8)  # what the first operator of a process costs is not the program's
    before, began = private_bytes(), time.process_time()
    program = load_program(directory, dimension_names={})
    seconds, loaded = time.process_time() - began, private_bytes()
    inputs = [
        torch.ones(shape, dtype=torch.int64) for shape in program.input_shapes(dict.fromkeys(program.dimensions, 1))
    ]
    inputs = [x.float() if spec.datatype == "FP32" else x for x, spec in zip(inputs, program.inputs, strict=True)]
    program.run(inputs)
    ran = private_bytes()
    megabytes = {"load_mb": (loaded - before) / 1e6, "run_mb": (ran - loaded) / 1e6}
    print(json.dumps({"load_s": seconds, **megabytes}))


def one_round(program: Program, inputs: Sequence[torch.Tensor], seconds: float) -> tuple[float, float]:
    """Microseconds of CPU and of wall time per run."""
    runs, cpu, wall = 0, time.process_time(), time.perf_counter()
    while time.process_time() - cpu < seconds:
        program.run(inputs)
        runs += 1
    return (time.process_time() - cpu) / runs * 1e6, (time.perf_counter() - wall) / runs * 1e6


def measure(
    machine: Program, native: Program, inputs: list[torch.Tensor], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Each figure as median, least and greatest over the rounds."""
    found: dict[str, list[float]] = {}
    for program in (machine, native):
        program.run(inputs)
    with torch.inference_mode():
        for _ in range(rounds):
            for kind, program in (("machine", machine), ("native", native)):
                cpu, wall = one_round(program, inputs, seconds)
                found.setdefault(f"{kind}_cpu_us", []).append(cpu)
                found.setdefault(f"{kind}_wall_us", []).append(wall)
    found["cpu_ratio"] = [n / m for m, n in zip(found["machine_cpu_us"], found["native_cpu_us"], strict=True)]
    return {name: [statistics.median(v), min(v), max(v)] for name, v in found.items()}


def bench(name: str, folder: Path, options: argparse.Namespace) -> None:
    export, choices = tables()[name]
    source, package = folder / f"{name}.pt2", folder / f"{name}.native.pt2"
    export(source)
    began = time.process_time(), time.monotonic(), os.times()
    built = build.build(source, package, target=options.target, keys=[BUILDER])
    children = sum(os.times()[2:4]) - sum(began[2][2:4])
    cpu = time.process_time() - began[0] + children
    paths = {"machine": prepare(source, folder / name), "native": prepare(package, folder / f"{name}.native")}
    machine, native = (load_program(path, dimension_names={}) for path in paths.values())
    print(
        f"\n{name} for {built.manifest.target}: compiled in {cpu:.0f} s CPU ({time.monotonic() - began[1]:.0f} s wall)"
    )
    print(
        f"  {source.stat().st_size:,} bytes, package {built.bytes:,}; {built.programs[0].trials.count} trials", end=""
    )
    print(f", largest difference {built.programs[0].trials.largest:.2g}; holds only when {built.programs[0].guards}")
    for kind, path in paths.items():
        cost = loading_cost(path)
        print(f"  loading, {kind}: {cost['load_s']:.3f} s CPU, private memory {cost['load_mb']:.1f} MB", end="")
        print(f", and {cost['run_mb']:.1f} MB by the first run")
    print(f"  {'':24} {'machine, CPU µs':>28} {'native, CPU µs':>28} {'native / machine':>20} {'wall µs':>20}")
    for label, inputs in choices.items():
        found = measure(machine, native, inputs, options.rounds, options.seconds)
        cells = [f"{v[0]:,.1f} ({v[1]:,.1f}-{v[2]:,.1f})" for v in (found["machine_cpu_us"], found["native_cpu_us"])]
        ratio = "{:.2f} ({:.2f}-{:.2f})".format(*found["cpu_ratio"])
        wall = f"{found['machine_wall_us'][0]:,.0f} / {found['native_wall_us'][0]:,.0f}"
        print(f"  {label:24} {cells[0]:>28} {cells[1]:>28} {ratio:>20} {wall:>20}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="CPU seconds of one model in one round")
    parser.add_argument("--target", default="native")
    parser.add_argument("--models", nargs="+", default=list(tables()), choices=list(tables()))
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load_and_measure(options.load)
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        for model in options.models:
            bench(model, Path(name), options)


if __name__ == "__main__":
    main()
