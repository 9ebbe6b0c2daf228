"""What every server in this folder serves: a list of decoded requests in, a list of answers out. Runs in a peer's
Python.

The first argument of a server's command line is a JSON object: `port`, `folder` (scratch), `workload` (`mlp` or
`minilm`), `model` (file), `max_batch` (rows), `max_wait` (seconds), and what a peer's settings add.
"""

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

Answers = list[dict[str, Any]]


@cache
def config() -> dict[str, Any]:
    """Of this process; a server that starts others hands them the same argument, or the variable HEADWAY_PEER."""
    import os

    text = os.environ.get("HEADWAY_PEER") or next(arg for arg in sys.argv[1:] if arg.startswith("{"))
    os.environ["HEADWAY_PEER"] = text
    return dict(json.loads(text))


def load_array() -> Callable[[np.ndarray], np.ndarray]:
    """The MLP: float32 [batch, 128] -> float32 [batch, 16]. One thread."""
    torch.set_num_threads(1)
    program = torch.jit.freeze(torch.jit.load(config()["model"]).eval())

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(program(torch.from_numpy(x)).numpy())

    run(np.zeros((4, 128), np.float32))
    return run


def load() -> Callable[[Sequence[dict[str, Any]]], Answers]:
    """The workload's model over decoded JSON, one object per request."""
    return _mlp() if config()["workload"] == "mlp" else _minilm()


def _mlp() -> Callable[[Sequence[dict[str, Any]]], Answers]:
    """{"x": 128 numbers} -> {"y": 16 numbers}."""
    run = load_array()

    def answer(requests: Sequence[dict[str, Any]]) -> Answers:
        return [{"y": row} for row in run(np.array([r["x"] for r in requests], np.float32)).tolist()]

    return answer


def _minilm() -> Callable[[Sequence[dict[str, Any]]], Answers]:
    """{"ids": n integers, "mask": n ones} -> {"embedding": 384 numbers}. Padded to the longest of the batch."""
    torch.set_num_threads(1)
    program = torch.export.load(config()["model"]).module()

    def answer(requests: Sequence[dict[str, Any]]) -> Answers:
        longest = max(len(r["ids"]) for r in requests)
        ids = np.zeros((len(requests), longest), np.int64)
        mask = np.zeros((len(requests), longest), np.int64)
        for row, request in enumerate(requests):
            ids[row, : len(request["ids"])] = request["ids"]
            mask[row, : len(request["mask"])] = request["mask"]
        with torch.inference_mode():
            embedding = program(torch.from_numpy(ids), torch.from_numpy(mask))
        return [{"embedding": row} for row in embedding.tolist()]

    answer([{"ids": [101, 102], "mask": [1, 1]}] * 2)
    return answer
