"""What is not hot, by FastAPI: metadata, the OpenAPI document and `/docs`, which describe the hot routes too."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from headway_api.names import REVISION_HEADER
from starlette.exceptions import HTTPException

from headway_runtime.errors import RequestError, UnknownModelError
from headway_runtime.pod import Generator, Pod
from headway_runtime.protocols import oip
from headway_runtime.protocols.http import triton
from headway_runtime.protocols.http.answers import headers_of
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.openapi import hot_paths
from headway_runtime.protocols.http.page import HEADERS, page
from headway_runtime.protocols.openai import embeddings, models
from headway_runtime.protocols.openai.errors import OPENAI, not_served, said
from headway_runtime.protocols.openai.schemas import text_paths

ADMIN_PATHS = ("/metrics", "/report", "/healthz")
ADMIN = " here; it is on the admin port"


def documents(front: Front) -> FastAPI:
    """The application for every path that the front does not answer itself."""
    pod = front.pod
    title = f"Headway: {pod.config.model}"  # FastAPI's own pages load scripts from elsewhere
    app = FastAPI(title=title, version=pod.config.revision, docs_url=None, redoc_url=None)
    app.include_router(triton.router(pod))
    app.include_router(embeddings.router(front))
    app.include_router(models.router(pod))
    headers = {REVISION_HEADER: pod.config.revision}

    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> JSONResponse:
        more = {name.decode(): value.decode() for name, value in headers_of(error)}
        return JSONResponse(said(error, request.url.path), error.status, {**headers, **more})

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path
        where = "" if error.status_code != 404 else ADMIN if path in ADMIN_PATHS else "; /docs says what is"
        message = f"{request.method} {path[:200]}: {error.detail}{where}"
        content = not_served(message) if path.startswith(OPENAI) else {"error": message}
        return JSONResponse(content, error.status_code, headers)

    @app.get("/v2", summary="Server metadata")
    async def server() -> JSONResponse:
        return JSONResponse(oip.server_metadata(), headers=headers)

    @app.get("/v2/models/{model}", summary="Model metadata")
    async def model_metadata(model: str) -> JSONResponse:
        return JSONResponse(_metadata(pod, model, None), headers=headers)

    @app.get("/v2/models/{model}/versions/{version}", summary="Model metadata of one version")
    async def version_metadata(model: str, version: str) -> JSONResponse:
        return JSONResponse(_metadata(pod, model, version), headers=headers)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers=headers | HEADERS)

    def openapi() -> dict[str, Any]:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        paths = hot_paths(pod)
        if isinstance(pod.model, Generator):
            paths = {path: found for path, found in paths.items() if not path.endswith("/infer")}
            paths |= text_paths(pod.model.facts, pod.config.model)
        if not embeddings.answered(pod.model):
            del schema["paths"][embeddings.PATH]
        _refuse_as_we_do(schema)
        schema["paths"].update(paths)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _refuse_as_we_do(schema: dict[str, Any]) -> None:
    """FastAPI documents 422 for every path with a name in it; another name than this pod's is 404 here."""
    for methods in schema["paths"].values():
        for operation in methods.values():
            if operation["responses"].pop("422", None) is not None:
                operation["responses"]["404"] = {"description": "Another model or version than this pod's."}
    schema.pop("components", None)  # which describe a 422


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
