"""KServe's gRPC client in a process of its own: its protocol buffers have the names of Triton's. Prints JSON.

`python grpc_kserve_client.py HOST:PORT MODEL`
"""

import asyncio
import json
import sys
from typing import Any

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

IDS, MASK = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 1, 0], [1, 1, 1]])


def question(model: str, *, raw: bool) -> InferRequest:
    inputs = [InferInput(name, [2, 3], "INT64") for name in ("ids", "mask")]
    for tensor, array in zip(inputs, (IDS, MASK), strict=True):
        tensor.set_data_from_numpy(array, binary_data=raw)
    return InferRequest(model, inputs, request_id="k-1")


async def main(target: str, model: str) -> dict[str, Any]:
    async with InferenceGRPCClient(target, timeout=20) as client:
        told: dict[str, Any] = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model": await client.is_model_ready(model),
        }
        for raw in (True, False):
            answer = await client.infer(question(model, raw=raw))
            told[f"raw {raw}"] = {"id": answer.id, "model": answer.model_name, "version": answer.model_version}
            told[f"raw {raw}"]["outputs"] = {each.name: each.as_numpy().tolist() for each in answer.outputs}
        try:
            await client.infer(question("other", raw=True))
        except grpc.RpcError as error:
            told["error"] = f"{error.code().name} {error.details()}"  # type: ignore[attr-defined]
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
