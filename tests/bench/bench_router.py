"""What the router adds to a request: the real Envoy, with the configuration that the operator renders, before a pod, on
loopback. By hand:

    python tests/bench/bench_router.py [--rounds 5] [--seconds 3]

One connection at a time asks the pod itself and the pod by way of the router, in turns; then the same with several.
The figure is the difference of the medians.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from headway_operator.router.render import Site
from headway_operator.router.render import render as render_router
from headway_runtime.bench.connection import Address
from headway_runtime.bench.encode import http_requests
from headway_runtime.bench.load import closed_loop
from realrouter.dns import Dns
from realrouter.envoy import Envoy
from realrouter.pods import Pods
from realrouter.stage import NAMESPACE, Stage, intent

from tests.bench.figures import cpu_seconds, machine, over_rounds, told, verdict
from tests.bench.soak import BUCKETS, INFO, requests
from tests.ports import free_port
from tests.unit.pod_process import MODEL, REVISION, PodProcess, pod
from tests.unit.small_models import Encoder, export, prepare

HOP = 0.3e-3  # seconds


@contextlib.asynccontextmanager
async def router(folder: Path, server: PodProcess) -> AsyncIterator[Stage]:
    """The router of a namespace with one model, whose only pod is `server`."""
    port, readout_port, admin_port = (free_port() for _ in range(3))
    site = Site(
        NAMESPACE,
        directory=str(folder / "mounted"),
        port=port,
        readout_port=readout_port,
        admin_port=admin_port,
        backend_port=server.port,
    )
    dns = Dns()
    envoy = Envoy(site, await dns.start(), folder / "envoy.log")
    stage = Stage(site, envoy, Pods(site, dns))
    dns.records[site.backend_host(MODEL, REVISION)] = ["127.0.0.1"]
    try:
        envoy.mount(render_router(stage.published, site).data())
        await envoy.start()
        await stage.settle(intent(MODEL, {REVISION: 100}, stable=REVISION))
        for _ in range(100):
            status, _, _ = await stage.ask(MODEL, f"/v2/models/{MODEL}")
            if status not in (404, 503):
                break
            await asyncio.sleep(0.1)
        yield stage
    finally:
        await envoy.stop()
        await dns.stop()


def one_round(server: PodProcess, stage: Stage, connections: int, seconds: float) -> dict[str, float]:
    """Both ways, one after the other."""
    assert stage.envoy.process is not None
    wire = http_requests(INFO, requests(64), host=MODEL)
    found: dict[str, float] = {}
    for name, port in (("direct", server.port), ("router", stage.site.port)):
        before = cpu_seconds(stage.envoy.process.pid)
        samples = closed_loop(Address("127.0.0.1", port), wire, connections=connections, seconds=seconds)
        assert not samples.errors, (name, samples.losses, samples.refusals.keys())
        summary = samples.summary()
        found |= {f"{name}_p50": summary.p50, f"{name}_p99": summary.p99, f"{name}_per_second": samples.throughput}
        found[f"{name}_envoy_cpu"] = (cpu_seconds(stage.envoy.process.pid) - before) / summary.count
    found["hop_p50"] = found["router_p50"] - found["direct_p50"]
    found["hop_p99"] = found["router_p99"] - found["direct_p99"]
    return found


async def measure(server: PodProcess, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    async with router(folder, server) as stage:
        results = {}
        for connections in options.connections:
            await asyncio.to_thread(one_round, server, stage, connections, 0.5)
            rounds = [
                await asyncio.to_thread(one_round, server, stage, connections, options.seconds)
                for _ in range(options.rounds)
            ]
            results[str(connections)] = over_rounds(rounds)
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "model")
        with pod(folder, folder / "model", batching={"shapeBuckets": BUCKETS}) as server:
            server.wait_for_phase()
            found = asyncio.run(measure(server, folder, options))
    print(json.dumps({"machine": machine(), "rounds": options.rounds, "results": found}))
    for connections, figures in found.items():
        ways = "; ".join(f"{name} p50 {told(figures[f'{name}_p50'], 'ms', 1e3)}" for name in ("direct", "router"))
        print(f"{connections} connections: {ways}; hop p50 {told(figures['hop_p50'], 'ms', 1e3)}")
        print(f"  Envoy's processor time: {told(figures['router_envoy_cpu'], 'µs a request', 1e6)}")
    first = next(iter(found.values()))
    print(verdict("p50 by way of the router, over a direct call, s", first["hop_p50"]["median"], HOP, at_most=True))


if __name__ == "__main__":
    main()
