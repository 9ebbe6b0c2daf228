"""CPU time that a pod spends on a request, whole process, closed loop on loopback. By hand: `python
tests/bench/bench_runtime.py`.

A small MLP (128 floats in, 16 out) in JSON, so that the path is measured and not the model. Prints JSON and a table:
median and range over rounds of CPU microseconds per request (user and system time of the pod), requests per second and
latency.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from tests.bench.models import Mlp
from tests.unit.pod_process import MODEL, PodProcess, pod, tensor
from tests.unit.small_models import prepare

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def client(port: int, request: bytes, end: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.perf_counter()) < end:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - began)
    writer.close()


async def one_round(server: PodProcess, clients: int, seconds: float) -> dict[str, float]:
    body = json.dumps({"inputs": [tensor("x", "FP32", [1, 128], [0.25] * 128)]}).encode()
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    latencies: list[float] = []
    before = cpu_seconds(server.process.pid)
    end = time.perf_counter() + seconds
    await asyncio.gather(*(client(server.port, head.encode() + body, end, latencies) for _ in range(clients)))
    used = cpu_seconds(server.process.pid) - before
    latencies.sort()
    return {
        "cpu_us": used / len(latencies) * 1e6,
        "per_second": len(latencies) / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }


def measure(server: PodProcess, clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Median, least and greatest of every figure over the rounds."""
    asyncio.run(one_round(server, clients, 1))
    found = [asyncio.run(one_round(server, clients, seconds)) for _ in range(rounds)]
    figures = {k: [round(r[k], 2) for r in found] for k in found[0]}
    return {"clients": clients, **{k: [statistics.median(v), min(v), max(v)] for k, v in figures.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = Dim("batch", min=1, max=64)
        program = torch.export.export(Mlp().eval(), (torch.zeros(2, 128),), dynamic_shapes=({0: batch},))
        torch.export.save(program, folder / "mlp.pt2")
        with pod(folder, prepare(folder / "mlp.pt2", folder / "model")) as server:
            server.wait_for_phase()
            results = [measure(server, clients, options.rounds, options.seconds) for clients in options.clients]
    print(json.dumps(results))
    print(f"{'clients':>8} {'CPU µs/request':>24} {'requests/s':>24} {'p50 ms':>18} {'p99 ms':>18}")
    for r in results:
        cells = (f"{r[k][0]:.1f} ({r[k][1]:.1f}-{r[k][2]:.1f})" for k in ("cpu_us", "per_second", "p50_ms", "p99_ms"))
        print(f"{r['clients']:>8} {next(cells):>24} {next(cells):>24} {next(cells):>18} {next(cells):>18}")


if __name__ == "__main__":
    main()
