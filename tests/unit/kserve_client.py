"""KServe's client in a process of its own (its protocol buffers have the names of Triton's): asks, and prints JSON.

`python kserve_client.py URL MODEL`
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferOutput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

IDS, MASK = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 1, 0], [1, 1, 1]])


def question(model: str, *, send: bool, receive: bool | None) -> InferRequest:
    inputs = [InferInput(name, [2, 3], "INT64") for name in ("ids", "mask")]
    for tensor, array in zip(inputs, (IDS, MASK), strict=True):
        tensor.set_data_from_numpy(array, binary_data=send)
    outputs = None
    if receive is not None:
        outputs = [RequestedOutput("pooled", parameters={"binary_data": receive})]
    return InferRequest(model, inputs, request_id="k-1", request_outputs=outputs)


def found(outputs: list[InferOutput]) -> dict[str, Any]:
    return {output.name: output.as_numpy().tolist() for output in outputs}


async def main(url: str, model: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=1, timeout=20))
    told: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model": await client.is_model_ready(url, model),
        "other": await client.is_model_ready(url, "other"),
    }
    for send in (True, False):
        for receive in (True, False, None):
            headers: dict[str, str] = {}
            answer = await client.infer(
                url, question(model, send=send, receive=receive), model_name=model, response_headers=headers
            )
            told[f"{send} {receive}"] = {"id": answer.id, "model": answer.model_name, **found(answer.outputs)}
            told["revision"] = headers["x-headway-revision"]
    plain = {
        "inputs": [
            {"name": "ids", "datatype": "INT64", "shape": [2, 3], "data": IDS.tolist()},
            {"name": "mask", "datatype": "INT64", "shape": [2, 3], "data": MASK.tolist()},
        ]
    }
    told["dictionary"] = found((await client.infer(url, plain, model_name=model)).outputs)
    try:
        await client.infer(url, {"inputs": []}, model_name=model)
    except httpx.HTTPStatusError as error:
        told["error"] = str(error)
    await client.close()
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2]))))
