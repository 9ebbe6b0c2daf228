"""CPU time that a pod spends on a request, whole process, closed loop on loopback. By hand: `python
tests/bench/bench_runtime.py`.

A small MLP (128 or 2,048 floats in, 16 out), so that the path is measured and not the model; in JSON and with the
binary tensor extension, in turn, so that both meet the same machine. Prints JSON and a table: median and range over
rounds of CPU microseconds per request (user and system time of the pod), requests per second and latency; and the
ratio of JSON to binary, the median of the rounds' own.
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

import numpy as np
import torch
from torch.export import Dim

from tests.bench.models import Mlp
from tests.unit.http_server import post
from tests.unit.pod_process import PodProcess, pod
from tests.unit.small_models import prepare

ENCODINGS = ("json", "binary")
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
        length = int(head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - began)
    writer.close()


def request(encoding: str, floats: int) -> bytes:
    """A whole request, in JSON or with tensors in binary, both ways."""
    values = np.random.default_rng(1).random(floats, dtype=np.float32)
    entry: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, floats]}
    if encoding == "json":
        body = json.dumps({"inputs": [{**entry, "data": values.tolist()}]}).encode()
        return post(body)
    entry["parameters"] = {"binary_data_size": values.nbytes}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return post(text + values.tobytes(), f"inference-header-content-length: {len(text)}")


async def one_round(
    server: PodProcess, clients: int, seconds: float, *, encoding: str = "json", floats: int = 128
) -> dict[str, float]:
    message = request(encoding, floats)
    latencies: list[float] = []
    before = cpu_seconds(server.process.pid)
    end = time.perf_counter() + seconds
    await asyncio.gather(*(client(server.port, message, end, latencies) for _ in range(clients)))
    used = cpu_seconds(server.process.pid) - before
    latencies.sort()
    return {
        "cpu_us": used / len(latencies) * 1e6,
        "per_second": len(latencies) / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }


def measure(server: PodProcess, clients: int, floats: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Median, least and greatest of every figure over the rounds, by encoding; and the ratio of JSON to binary."""
    asyncio.run(one_round(server, clients, 1, floats=floats))
    found: dict[str, list[dict[str, float]]] = {encoding: [] for encoding in ENCODINGS}
    for _ in range(rounds):
        for encoding, results in found.items():
            results.append(asyncio.run(one_round(server, clients, seconds, encoding=encoding, floats=floats)))
    both = zip(found["json"], found["binary"], strict=True)
    ratio = statistics.median(plain["cpu_us"] / binary["cpu_us"] for plain, binary in both)
    return [
        {
            "clients": clients,
            "floats": floats,
            "encoding": encoding,
            "json_to_binary": round(ratio, 2),
            **spread(results),
        }
        for encoding, results in found.items()
    ]


def spread(rounds: list[dict[str, float]]) -> dict[str, list[float]]:
    values = {key: [round(one[key], 2) for one in rounds] for key in rounds[0]}
    return {key: [statistics.median(v), min(v), max(v)] for key, v in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32, 64])
    parser.add_argument("--floats", type=int, nargs="+", default=[128, 2048])
    options = parser.parse_args()
    results = [row for floats in options.floats for row in one_size(floats, options)]
    print(json.dumps(results))
    print(
        f"{'floats':>6} {'clients':>8} {'':>6} {'CPU µs/request':>24} {'requests/s':>24} {'p50 ms':>18} {'p99 ms':>18}"
    )
    for r in results:
        cells = [f"{r[k][0]:.1f} ({r[k][1]:.1f}-{r[k][2]:.1f})" for k in ("cpu_us", "per_second", "p50_ms", "p99_ms")]
        widths = zip(cells, (24, 24, 18, 18), strict=True)
        figures = " ".join(f"{cell:>{width}}" for cell, width in widths)
        print(f"{r['floats']:>6} {r['clients']:>8} {r['encoding']:>6} {figures}")
    for r in results[::2]:
        print(f"{r['floats']} floats, {r['clients']} clients: JSON costs {r['json_to_binary']} times as much as binary")


def one_size(floats: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Serve a model with so many inputs, and measure it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = Dim("batch", min=1, max=64)
        program = torch.export.export(Mlp(floats).eval(), (torch.zeros(2, floats),), dynamic_shapes=({0: batch},))
        torch.export.save(program, folder / "mlp.pt2")
        with pod(folder, prepare(folder / "mlp.pt2", folder / "model")) as server:
            server.wait_for_phase()
            return [
                row
                for clients in options.clients
                for row in measure(server, clients, floats, options.rounds, options.seconds)
            ]


if __name__ == "__main__":
    main()
