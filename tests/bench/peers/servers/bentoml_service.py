"""What BentoML runs."""

import bentoml
import numpy as np
from served import config, load_array

_settings = config()


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, metrics={"enabled": False}, traffic={"timeout": 30})
class Mlp:
    def __init__(self) -> None:
        self.run = load_array()

    @bentoml.api(
        batchable=True,
        max_batch_size=_settings["max_batch"],
        max_latency_ms=max(1, round(_settings["max_wait"] * 1000)),
    )
    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.run(x.astype(np.float32))
