"""What is not hot, by FastAPI: metadata, the OpenAPI document and `/docs`, which describe the hot routes too."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from headway_api.names import REVISION_HEADER
from starlette.exceptions import HTTPException

from headway_runtime.errors import RequestError, UnknownModelError
from headway_runtime.pod import Pod
from headway_runtime.protocols import oip, openai

_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape", "data"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string", "examples": ["FP32", "INT64", "BOOL"]},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "array", "items": {}, "description": "Flat in row-major order, or nested like shape."},
    },
}
_INFER = {
    "summary": "Inference",
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "inputs": {"type": "array", "items": _TENSOR},
                        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
                    },
                }
            }
        },
    },
    "responses": {
        "200": {"description": "The outputs, with the queue time and the batch size in headers."},
        "400": {"description": "What is wrong, in which input, and what is allowed."},
        "404": {"description": "Another model or version."},
        "413": {"description": "More than is ever admitted."},
        "429": {"description": "The queue is full; Retry-After says when to come back."},
        "503": {"description": "Loading, warming or ending; no model has seen the request."},
        "504": {"description": "It did not start in time."},
    },
}
_READY = {"summary": "Readiness", "responses": {"200": {"description": "Ready."}, "503": {"description": "Why not."}}}


def documents(pod: Pod) -> FastAPI:
    """The application for every path that the front does not answer itself."""
    app = FastAPI(title=f"Headway: {pod.config.model}", version=pod.config.revision)
    app.include_router(openai.router(pod))
    headers = {REVISION_HEADER: pod.config.revision}

    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status, headers)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return JSONResponse({"error": message}, error.status_code, headers)

    @app.get("/v2", summary="Server metadata")
    async def server() -> JSONResponse:
        return JSONResponse(oip.server_metadata(), headers=headers)

    @app.get("/v2/models/{model}", summary="Model metadata")
    async def model_metadata(model: str) -> JSONResponse:
        return JSONResponse(_metadata(pod, model, None), headers=headers)

    @app.get("/v2/models/{model}/versions/{version}", summary="Model metadata of one version")
    async def version_metadata(model: str, version: str) -> JSONResponse:
        return JSONResponse(_metadata(pod, model, version), headers=headers)

    def openapi() -> dict[str, Any]:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        base = f"/v2/models/{pod.config.model}"
        schema["paths"].update(
            {
                f"{base}/infer": {"post": _INFER},
                f"{base}/versions/{pod.config.revision}/infer": {"post": _INFER},
                f"{base}/ready": {"get": _READY},
                "/v2/health/ready": {"get": _READY},
                "/v2/health/live": {"get": {"summary": "Liveness", "responses": {"200": {"description": "Alive."}}}},
            }
        )
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _metadata(pod: Pod, model: str, version: str | None) -> dict[str, Any]:
    config = pod.config
    if model != config.model or version not in (None, config.revision):
        asked = model if version is None else f"{model}, version {version}"
        raise UnknownModelError(
            f"{asked} is not served here: this pod serves model {config.model!r}, version {config.revision!r}"
        )
    loaded, _ = pod.serving()
    return {
        "name": config.model,
        "versions": [config.revision],
        "platform": oip.PLATFORM,
        **loaded.describe(),
    }
