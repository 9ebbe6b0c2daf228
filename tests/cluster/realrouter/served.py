"""A real runtime pod among the pods of a stage: the serve container's process, with a small model."""

import asyncio
import json
from pathlib import Path

import aiohttp

from realrouter.pods import RunningPod
from realrouter.stage import Stage
from tests.ports import free_port

READY_SECONDS = 90


async def serve(
    stage: Stage, folder: Path, prepared: Path, *, model: str, revision: str, drain: str, knobs: str
) -> RunningPod:
    """Start it and wait until it is ready. `drain` is its drain timeout, `knobs` is its knobs file."""
    address = stage.pods.address()
    files = folder / address
    (files / "scratch").mkdir(parents=True)
    config = {
        "model": model,
        "namespace": "prod",
        "revision": revision,
        "artifact": {"uri": "file:///model.pt2"},
        "device": {"kind": "cpu"},
        "batching": {"shapeBuckets": {"batch": [8], "ids.1": [8]}},
        "drainTimeout": drain,
    }
    (files / "config.json").write_text(json.dumps(config))
    (files / "knobs.json").write_text(knobs)
    options = {
        "--config": files / "config.json",
        "--knobs": files / "knobs.json",
        "--model": prepared,
        "--termination-log": files / "termination-log",
        "--scratch": files / "scratch",
        "--host": address,
        "--port": stage.site.backend_port,
        "--admin-port": free_port(),
        "--grpc-port": stage.site.grpc_port,
    }
    arguments = ["-m", "headway_runtime.serve", *(str(word) for option in options.items() for word in option)]
    pod = await stage.pods.run(arguments, address, model, revision)
    url = f"http://{address}:{stage.site.backend_port}/v2/models/{model}/versions/{revision}/ready"
    async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as answer:
                if answer.status == 200:
                    return pod
            await asyncio.sleep(0.1)
