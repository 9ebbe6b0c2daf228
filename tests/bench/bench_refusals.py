"""CPU time that a pod spends on a request that it refuses because its line is full, whole process. By hand: `python
tests/bench/bench_refusals.py`.

A small MLP (128 or 2,048 floats in), whose line is filled by requests that wait for company; then 32 connections in a
closed loop, all refused with 429. Prints JSON and a table: median and range over rounds of CPU microseconds.
"""

import argparse
import contextlib
import json
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

import torch
from headway_runtime.bench.connection import Address
from headway_runtime.bench.load import closed_loop
from torch.export import Dim

from tests.bench.bench_runtime import ENCODINGS, request
from tests.bench.figures import cpu_seconds, machine, spread, told
from tests.bench.models import Mlp
from tests.unit.pod_process import PodProcess, pod
from tests.unit.small_models import prepare

CAPACITY = 4
KNOBS = {"maxBatch": 64, "maxWait": "20s", "queue": {"capacity": CAPACITY, "timeout": "60s"}}


def one_round(server: PodProcess, message: bytes, seconds: float) -> float:
    """CPU seconds of a refusal."""
    with contextlib.ExitStack() as waiting:
        for _ in range(CAPACITY):
            client = waiting.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(message)
        time.sleep(0.2)
        before = cpu_seconds(server.process.pid)
        samples = closed_loop(Address("127.0.0.1", server.port), [message], connections=32, seconds=seconds)
        used = cpu_seconds(server.process.pid) - before
    if set(samples.refusals) != {429} or samples.latencies or samples.losses:
        raise SystemExit(f"not all were refused: {len(samples.latencies)} answers, lost {dict(samples.losses)}")
    time.sleep(0.2)  # those that waited have left, and are swept away
    return used / len(samples.refusals[429])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--floats", type=int, nargs="+", default=[128, 2048])
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for floats in options.floats:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            batch = Dim("batch", min=1, max=64)
            program = torch.export.export(Mlp(floats).eval(), (torch.zeros(2, floats),), dynamic_shapes=({0: batch},))
            torch.export.save(program, folder / "mlp.pt2")
            with pod(folder, prepare(folder / "mlp.pt2", folder / "model")) as server:
                server.wait_for_phase()
                server.apply_knobs(KNOBS)
                for encoding in ENCODINGS:
                    message = request(encoding, floats)
                    rounds = [one_round(server, message, options.seconds) for _ in range(options.rounds)]
                    results[f"{floats} floats, {encoding}"] = spread(rounds)
    print(json.dumps({"machine": machine(), "seconds_of_cpu": results}))
    for what, figure in results.items():
        print(f"{what}: {told(figure, 'µs of CPU a refusal', 1e6)}")


if __name__ == "__main__":
    main()
