"""GET /v1/models and /v1/models/{id}: a pod serves one."""

import time
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from headway_api.names import REVISION_HEADER

from headway_runtime.pod import Generator, Pod
from headway_runtime.protocols.openai.errors import check_model

PATH = "/v1/models"


def router(pod: Pod) -> APIRouter:
    """The routes. None loaded yet, or another model: RequestError."""
    routes, created = APIRouter(tags=["OpenAI"]), int(time.time())
    headers = {REVISION_HEADER: pod.config.revision}

    def described() -> dict[str, Any]:
        served, _ = pod.serving()
        model = {"id": pod.config.model, "object": "model", "created": created, "owned_by": "headway"}
        if isinstance(served, Generator):
            model["max_model_len"] = served.facts.max_length  # as vLLM has it
        return model

    @routes.get(PATH, summary="The model of this pod, in a list")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [described()]}, headers=headers)

    @routes.get(PATH + "/{name}", summary="The same by its name")
    async def model(name: str) -> JSONResponse:
        check_model(name, pod.config.model)
        return JSONResponse(described(), headers=headers)

    return routes
