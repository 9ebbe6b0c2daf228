"""POST /v1/embeddings, as OpenAI's clients speak it, for an encoder that carries a tokenizer.

Texts, or tokens as they are, go in; they run in pieces of similar length, each of which the batcher joins with whatever
else waits. Errors have OpenAI's shape. Source: the `Embeddings` section of OpenAI's API reference.
"""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from headway_api.names import REVISION_HEADER
from starlette.requests import ClientDisconnect

from headway_runtime.errors import InvalidRequestError, RequestError, SlowBodyError, TooLargeError
from headway_runtime.knobs import BODY_FIELD
from headway_runtime.logs import log
from headway_runtime.pod import Model, Pod
from headway_runtime.protocols.http.answers import headers_of
from headway_runtime.protocols.http.bodies import is_large
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head, read_head
from headway_runtime.protocols.openai.documents import document_of
from headway_runtime.protocols.openai.errors import ParameterError, check_model, error_body
from headway_runtime.served import Served
from headway_runtime.serving.service import Service
from headway_runtime.serving.steps.pipeline import Pipeline
from headway_runtime.serving.steps.text import TextStep
from headway_runtime.serving.steps.tokens import Tokens
from headway_runtime.serving.values import Call, Given

MAX_INPUTS = 2048
AT_ONCE = 4  # pieces of one request that wait and run at the same time
PATH = "/v1/embeddings"

_EMBEDDING = "embedding"
_FLOATS = ("FP16", "BF16", "FP32", "FP64")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string"},
        "input": {
            "description": "A text, texts, tokens of a text, or of several.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "integer"}},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            ],
        },
        "encoding_format": {"type": "string", "enum": ["float", "base64"], "default": "float"},
        "dimensions": {"type": "integer", "description": "The model's own, if given at all."},
    },
}


@dataclass(frozen=True, slots=True)
class Encoder:
    """What embeds: the step that makes tokens, and the output [rows, width] that is the embedding."""

    text: TextStep
    output: str
    width: int

    @classmethod
    def of(cls, pipeline: Pipeline | None) -> "Encoder":
        """Raises InvalidRequestError, saying why this model is none."""
        if pipeline is None or pipeline.text is None:
            raise InvalidRequestError("this model takes no texts: its artifact declares no step `text`")
        pooled = [
            output
            for output in pipeline.outputs
            if output["datatype"] in _FLOATS and len(output["shape"]) == 2 and output["shape"][1] > 0
        ]
        named = [output for output in pooled if output["name"] == _EMBEDDING]
        found = named or ([] if pipeline.labels.names else pooled)
        if len(found) != 1:
            why = "no output" if not found else f"{len(found)} outputs"
            raise InvalidRequestError(f"{why} of this model can be an embedding [rows, width]; call one `embedding`")
        return cls(pipeline.text, found[0]["name"], found[0]["shape"][1])


@dataclass(frozen=True, slots=True)
class Asked:
    """The body, checked: texts, or tokens."""

    texts: list[str] | None
    tokens: list[Tokens]
    base64: bool


def answered(model: Served | None) -> bool:
    """Whether this model embeds; not as long as nobody knows."""
    try:
        return isinstance(model, Model) and bool(Encoder.of(model.pipeline))
    except InvalidRequestError:
        return False


def router(front: Front) -> APIRouter:
    """The route."""
    routes, pod, service = APIRouter(), front.pod, front.service

    @routes.post(
        PATH, summary="Embeddings, as OpenAI's clients ask for them", openapi_extra=_described(pod.config.model)
    )
    async def embeddings(request: Request) -> Response:
        began = service.begin()
        headers = {REVISION_HEADER: pod.config.revision}
        status = 200
        refused: RequestError | None = None
        try:
            head = read_head(request.scope["headers"])
            allowed = min(service.allowed(), head.wait or float("inf"))
            async with asyncio.timeout(allowed):
                document = await _read(request, front, head)
            content = await _answer(pod, service, document, deadline=began + allowed, head=head)
        except TimeoutError:
            refused, status = SlowBodyError("the deadline passed before the body had arrived"), SlowBodyError.status
        except ClientDisconnect:
            service.end(began, None, "client_gone")
            return Response(status_code=400)  # which nobody reads
        except RequestError as error:
            refused, status = error, error.status
            headers |= {name.decode(): value.decode() for name, value in headers_of(error)}
        except Exception as error:
            log("request_failed", level="error", error=error)
            refused, status = RequestError(f"internal error: {type(error).__name__}; the pod's log has more"), 500
        service.end(began, status, refused)
        if refused is not None:
            content = error_body(refused)
        return Response(content, status, headers, "application/json")

    return routes


def _described(model: str) -> dict[str, Any]:
    """The body, for OpenAPI."""
    content = {"schema": _SCHEMA, "example": {"model": model, "input": ["a text"]}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


async def _read(request: Request, front: Front, head: Head) -> dict[str, Any]:
    """The body's document. Its bytes count among those of all bodies while they come."""
    body, held = bytearray(), 0
    try:
        async for part in request.stream():
            body += part
            if len(body) > front.max_body:
                raise TooLargeError(f"more than {front.max_body} bytes; that is the most that is read ({BODY_FIELD})")
            held += len(part)
            front.hold(len(part))
        if is_large(body, head):
            work = partial(document_of, body, head, front.max_body)
            return await asyncio.get_running_loop().run_in_executor(front.workers, work)
        return document_of(body, head, front.max_body)
    finally:
        front.hold(-held)


async def _answer(pod: Pod, service: Service, document: dict[str, Any], *, deadline: float, head: Head) -> bytes:
    model, settings = served = pod.computing()
    check_model(document.get("model"), pod.config.model)
    service.expect(deadline, head.priority)  # before its texts are read
    encoder = Encoder.of(model.pipeline)
    asked = _asked(document, encoder)
    tokens = asked.tokens if asked.texts is None else await _tokens(encoder.text, asked.texts, deadline)
    pieces = [
        rows[first : first + settings.limits.max_batch]
        for rows in encoder.text.pieces(tokens, (encoder.output,))
        for first in range(0, len(rows), settings.limits.max_batch)
    ]
    vectors = np.empty((len(tokens), encoder.width), np.float32)
    turns = asyncio.Semaphore(AT_ONCE)

    async def run(rows: Sequence[int]) -> None:
        inputs = encoder.text.tensors([tokens[row] for row in rows])
        async with turns:
            given = Given(inputs, (encoder.output,))
            reply = await service.infer(given, deadline=deadline, priority=head.priority, served=served)
        value = reply.outputs[0].value
        assert isinstance(value, torch.Tensor)
        vectors[rows] = value.float().numpy()

    try:
        async with asyncio.TaskGroup() as group:
            for rows in pieces:
                group.create_task(run(rows))
    except* RequestError as errors:
        error = next(error for error in errors.exceptions if isinstance(error, RequestError))
        error.admitted = error.admitted or len(pieces) > 1  # the model may have seen others
        raise error from None
    return _document(pod.config.model, vectors, asked, sum(len(each.ids) for each in tokens))


def _document(model: str, vectors: np.ndarray[Any, Any], asked: Asked, used: int) -> bytes:
    def written(vector: np.ndarray[Any, Any]) -> Any:
        return base64.b64encode(vector.tobytes()).decode() if asked.base64 else vector

    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": at, "embedding": written(vector)} for at, vector in enumerate(vectors)
            ],
            "model": model,
            "usage": {"prompt_tokens": used, "total_tokens": used},
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


async def _tokens(step: TextStep, texts: list[str], deadline: float) -> list[Tokens]:
    future: asyncio.Future[list[Tokens]] = asyncio.get_running_loop().create_future()

    def done(result: list[Tokens] | RequestError | None) -> None:
        if future.done():
            return
        if isinstance(result, list):
            future.set_result(result)
        else:
            future.set_exception(result or RequestError("the client has gone"))

    step.encode(texts, Call(deadline, future.cancelled, lambda _: None), done)
    return await future


def _asked(document: dict[str, Any], encoder: Encoder) -> Asked:
    form = document.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise ParameterError("encoding_format", "float or base64")
    width = document.get("dimensions")
    if width is not None and width != encoder.width:
        raise ParameterError("dimensions", f"this model's embeddings have {encoder.width}, and are not shortened")
    given = document.get("input")
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        given = [given]
    if not isinstance(given, list) or not given:
        raise ParameterError("input", "a text, a list of texts, tokens of a text, or a list of those")
    if len(given) > MAX_INPUTS:
        raise ParameterError("input", f"{len(given)} inputs; at most {MAX_INPUTS} in one request")
    if all(isinstance(each, str) for each in given):
        return Asked(given, [], form == "base64")
    return Asked(None, [_given_tokens(each, at, encoder.text) for at, each in enumerate(given)], form == "base64")


def _given_tokens(ids: object, at: int, step: TextStep) -> Tokens:
    most = step.lengths.longest
    if (
        not isinstance(ids, list)
        or not ids
        or not all(type(each) is int and 0 <= each < step.vocabulary for each in ids)
    ):
        raise ParameterError("input", f"input {at} must be a text, or token ids from 0 to {step.vocabulary - 1}")
    if len(ids) > most:
        raise ParameterError(
            "input", f"input {at} has {len(ids)} tokens; at most {most} are taken ({step.lengths.why})"
        )
    return Tokens(ids, [0] * len(ids))
