"""CPU time that a pod spends on a ModelInfer call: this pod's server against grpcio's. By hand: `python
tests/bench/bench_grpc.py`.

One process holds one loaded model (128 floats in, 16 out) and two servers in front of it, on one event loop (uvloop):
the pod's own (h2), and `grpc.aio`, whose handler decodes, calls `serving.Service` and encodes by the very functions of
the pod. They are asked in turns by the same clients (grpc.aio, raw tensors), so that all but the server is the same.
grpcio could not serve in a real pod: a confined process may not make sockets, and no thread before it is confined.

Prints JSON and a table: CPU microseconds per call (user and system time of the process), calls per second, and the
median over rounds of our CPU over grpcio's.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import torch
from headway_api.podconfig import ColdConfig
from headway_runtime.life import Life, Options
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.ports import listen
from headway_runtime.protocols.grpc import infer, tensors
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.serving.service import Service
from torch.export import Dim

from tests.bench.bench_runtime import cpu_seconds
from tests.bench.models import Mlp
from tests.unit.small_models import prepare

MODEL, REVISION = "mlp", "0a1b2c3d"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
SERVERS = ("headway", "grpcio")


class Handler(grpc.GenericRpcHandler):
    """The method of the pod, behind grpcio."""

    def __init__(self, pod: Pod) -> None:
        self._service = Service(pod)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(self._infer)

    async def _infer(self, message: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        began = self._service.begin()
        metadata = {name.encode(): value.encode() for name, value in context.invocation_metadata() or ()}
        wait = infer.allowed(metadata, self._service.allowed())
        request = infer.parsed(message)
        infer.check(MODEL, REVISION, request.model_name, request.model_version)
        reply = await self._service.infer(
            tensors.given(request), deadline=began + infer.within(request, wait), priority=infer.priority(metadata)
        )
        answer = infer.encoded(reply, MODEL, REVISION, request.id, raw=bool(request.raw_input_contents))
        context.set_trailing_metadata([(name.decode(), value.decode()) for name, value in infer.facts(reply)])
        self._service.end(began, 200)
        return answer


def serve(folder: Path) -> None:
    """Both servers, until told to end. Prints their ports."""
    import uvloop

    torch.set_num_threads(1)
    cold = {"model": MODEL, "namespace": "bench", "revision": REVISION, "artifact": {"uri": "file:///m.pt2"}}
    pod = Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin())
    (folder / "knobs.json").write_text('{"maxWait": "0ms"}')
    inference, admin, own = (listen("127.0.0.1", 0) for _ in range(3))
    options = Options(folder / "model", folder / "knobs.json", inference, admin, own)

    async def live() -> None:
        life = asyncio.create_task(Life(pod, options).run())
        while not pod.ready:  # noqa: ASYNC110 - the pod has no event for it, and needs none
            await asyncio.sleep(0.05)
        peer = grpc.aio.server()
        peer.add_generic_rpc_handlers((Handler(pod),))
        port = peer.add_insecure_port("127.0.0.1:0")
        await peer.start()
        print(json.dumps({"headway": own.getsockname()[1], "grpcio": port}), flush=True)
        await life
        await peer.stop(None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())


async def one_round(pid: int, port: int, clients: int, seconds: float) -> dict[str, float]:
    request = pb.ModelInferRequest(model_name=MODEL)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 128])
    request.raw_input_contents.append(bytes(torch.full((128,), 0.25).numpy().tobytes()))
    message = request.SerializeToString()
    latencies: list[float] = []

    async def client(end: float) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            method = channel.unary_unary(METHOD)
            while (began := time.perf_counter()) < end:
                answer = pb.ModelInferResponse.FromString(await method(message))
                assert answer.outputs, answer
                latencies.append(time.perf_counter() - began)

    before = cpu_seconds(pid)
    end = time.perf_counter() + seconds
    await asyncio.gather(*(client(end) for _ in range(clients)))
    used = cpu_seconds(pid) - before
    latencies.sort()
    return {
        "cpu_us": used / len(latencies) * 1e6,
        "per_second": len(latencies) / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }


async def measure(pid: int, ports: dict[str, int], clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    """All rounds, in turns."""
    for port in ports.values():
        await one_round(pid, port, clients, 1)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for number in range(rounds):
        for name in SERVERS if number % 2 == 0 else reversed(SERVERS):
            found[name].append(await one_round(pid, ports[name], clients, seconds))
    ratios = [ours["cpu_us"] / theirs["cpu_us"] for ours, theirs in zip(*found.values(), strict=True)]
    medians = {
        name: {key: round(statistics.median(each[key] for each in rounds_), 2) for key in rounds_[0]}
        for name, rounds_ in found.items()
    }
    return {"clients": clients, **medians, "ratio": round(statistics.median(ratios), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--serve", type=Path, help="internal: be the server, with the model in this folder")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = torch.export.export(
            Mlp().eval(), (torch.zeros(2, 128),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},)
        )
        torch.export.save(program, folder / "mlp.pt2")
        prepare(folder / "mlp.pt2", folder / "model")
        command = [sys.executable, "-m", "tests.bench.bench_grpc", "--serve", str(folder)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "log").read_text()
            ports = json.loads(line)
            results = [
                asyncio.run(measure(process.pid, ports, clients, options.rounds, options.seconds))
                for clients in options.clients
            ]
        finally:
            process.kill()
            process.wait()
    print(json.dumps(results))
    print(f"{'clients':>8} {'server':>8} {'CPU µs/call':>12} {'calls/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for result in results:
        for server in SERVERS:
            row = result[server]
            cells = f"{row['cpu_us']:>12.1f} {row['per_second']:>10.0f} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f}"
            print(f"{result['clients']:>8} {server:>8} {cells}")
        print(f"{'':>8} CPU of headway / grpcio, median of rounds: {result['ratio']}")


if __name__ == "__main__":
    main()
