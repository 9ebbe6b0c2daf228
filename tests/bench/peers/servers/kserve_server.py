"""KServe's Python model server. It has no dynamic batching of its own: KServe does that in a sidecar, written in Go."""

import sys
from typing import Any

import numpy as np
from served import config, load_array

_settings = config()
sys.argv[1:] = []

from kserve import Model, ModelServer  # noqa: E402 - it reads the command line at import


class Mlp(Model):
    def __init__(self) -> None:
        super().__init__("mlp")
        self.run = load_array()
        self.ready = True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        x = np.array(payload["instances"], np.float32)
        return {"predictions": self.run(x).tolist()}


if __name__ == "__main__":
    ModelServer(
        http_port=_settings["port"], workers=1, enable_grpc=False, enable_latency_logging=False, access_log_format=None
    ).start([Mlp()])
