"""Ray Serve: one proxy, one replica, `serve.batch`."""

import os
import signal
from pathlib import Path
from typing import Any

from served import config

_settings = config()
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_AUTH_MODE": "disabled",
}
os.environ |= {name: str(value) for name, value in _settings.get("environment", {}).items()}
os.environ["PYTHONPATH"] = str(Path(__file__).parent)

import ray  # noqa: E402 - Ray Serve reads its environment at import
from ray import serve  # noqa: E402
from starlette.requests import Request  # noqa: E402


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 1})
class Mlp:
    def __init__(self) -> None:
        from served import load

        self.run = load()

    @serve.batch(max_batch_size=_settings["max_batch"], batch_wait_timeout_s=_settings["max_wait"])
    async def infer(self, requests: list[Any]) -> list[Any]:
        return self.run(requests)

    async def __call__(self, request: Request) -> Any:
        return await self.infer(await request.json())


def main() -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        _temp_dir=_settings["folder"],
        runtime_env={"env_vars": {"HEADWAY_PEER": os.environ["HEADWAY_PEER"], "OMP_WAIT_POLICY": "passive"}},
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": _settings["port"]}, logging_config={"enable_access_log": False}
    )
    serve.run(Mlp.bind(), blocking=False)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, set())
    main()
