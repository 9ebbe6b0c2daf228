"""What Triton's clients ask besides inference: configuration, statistics, the repository; and what is not served here.

The answers are those of gRPC (`protocols.grpc.facts`), in the JSON that Triton makes of them.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from headway_api.names import REVISION_HEADER

from headway_runtime.pod import Pod
from headway_runtime.protocols.grpc import facts
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb

_NOT_HERE = {
    "/v2/repository/models/{rest:path}": "a pod serves one revision from its begin to its end; apply another"
    " ModelDeployment, or change its artifact",
    "/v2/systemsharedmemory/{rest:path}": "shared memory; send tensors in the request, in binary",
    "/v2/cudasharedmemory/{rest:path}": "shared memory; send tensors in the request, in binary",
    "/v2/trace/{rest:path}": "traces",
    "/v2/models/{model}/trace/{rest:path}": "traces",
    "/v2/logging": "changes of the log; a pod logs events, and no requests",
}


def router(pod: Pod) -> APIRouter:
    """The routes. Another model or version, or none loaded yet: RequestError."""
    routes = APIRouter(tags=["Triton"])
    headers = {REVISION_HEADER: pod.config.revision}

    def config(model: str, version: str = "") -> JSONResponse:
        found = facts.model_config(pod, pb.ModelConfigRequest(name=model, version=version))
        return JSONResponse(as_json(found.config), headers=headers)

    def statistics(model: str = "", version: str = "") -> JSONResponse:
        found = facts.model_statistics(pod, pb.ModelStatisticsRequest(name=model, version=version))
        return JSONResponse(as_json(found), headers=headers)

    @routes.get("/v2/models/stats", summary="Statistics")
    async def all_statistics() -> JSONResponse:
        return statistics()

    @routes.get("/v2/models/{model}/stats", summary="Statistics of a model")
    async def model_statistics(model: str) -> JSONResponse:
        return statistics(model)

    @routes.get("/v2/models/{model}/versions/{version}/stats", summary="Statistics of a version")
    async def version_statistics(model: str, version: str) -> JSONResponse:
        return statistics(model, version)

    @routes.get("/v2/models/{model}/config", summary="Configuration, as Triton would have it")
    async def model_config(model: str) -> JSONResponse:
        return config(model)

    @routes.get("/v2/models/{model}/versions/{version}/config", summary="Configuration of a version")
    async def version_config(model: str, version: str) -> JSONResponse:
        return config(model, version)

    @routes.post("/v2/repository/index", summary="The one model of this pod")
    async def index() -> JSONResponse:
        found = facts.repository_index(pod, pb.RepositoryIndexRequest())
        return JSONResponse(as_json(found)["models"], headers=headers)

    for path, what in _NOT_HERE.items():
        _refuse(routes, path, what, headers)
    return routes


def as_json(message: Message) -> dict[str, Any]:
    """A message as Triton writes it: every field by its name, whole numbers as numbers, what is not set left out."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None:
            value = getattr(message, field.name)
            found[field.name] = [_plain(field, v) for v in value] if field.is_repeated else _plain(field, value)
        elif field.message_type.GetOptions().map_entry:
            continue  # of maps, a model served here has none
        elif field.is_repeated:
            found[field.name] = [as_json(part) for part in getattr(message, field.name)]
        elif message.HasField(field.name):
            found[field.name] = as_json(getattr(message, field.name))
    return found


def _plain(field: FieldDescriptor, value: Any) -> Any:
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name


def _refuse(routes: APIRouter, path: str, what: str, headers: dict[str, str]) -> None:
    @routes.api_route(path, methods=["GET", "POST"], include_in_schema=False)
    async def not_here(request: Request) -> JSONResponse:
        message = f"{request.method} {request.url.path[:200]} is not served here: {what}"
        return JSONResponse({"error": message}, 501, headers)
