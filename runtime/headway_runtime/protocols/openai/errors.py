"""Errors as OpenAI writes them: `{"error": {"message", "type", "param", "code"}}`. Pure."""

from typing import Any

import orjson

from headway_runtime.errors import InvalidRequestError, QueueFullError, RequestError, UnknownModelError

OPENAI = "/v1/"
"""What all paths of OpenAI's begin with."""


class ParameterError(InvalidRequestError):
    """Which field of the body is at fault, as `messages.0.role`; `code` where OpenAI has one for it."""

    def __init__(self, parameter: str, message: str, *, code: str | None = None) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter = parameter
        self.code = code


class SlowReaderError(RequestError):
    """Too much of a stream waits to be read by its client."""

    status = 408
    kind = "slow_reader"
    closes = True


def error_of(error: RequestError) -> dict[str, Any]:
    """The document; it is the body of an answer, or an event of a stream."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    code = parameter = None
    if isinstance(error, QueueFullError):
        kind, code = "rate_limit_error", "rate_limit_exceeded"
    elif isinstance(error, UnknownModelError):
        code = "model_not_found"
    elif isinstance(error, ParameterError):
        parameter, code = error.parameter, error.code
    return {"error": {"message": str(error), "type": kind, "param": parameter, "code": code}}


def said(error: RequestError, path: str) -> dict[str, Any]:
    """The document on this path: OpenAI's on its own, elsewhere that of the Open Inference Protocol."""
    return error_of(error) if path.startswith(OPENAI) else {"error": str(error)}


def error_body(error: RequestError) -> bytes:
    """The same in JSON."""
    return orjson.dumps(error_of(error))


def not_served(message: str) -> dict[str, Any]:
    """Of a path, or a method of one, that is not here."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def check_model(asked: object, served: str) -> None:
    """Raises ParameterError without a name of a model, UnknownModelError for another than this pod serves."""
    if asked is None:
        raise ParameterError("model", f"is not given; this pod serves {served!r}")
    if asked != served:
        raise UnknownModelError(f"the model {str(asked)[:100]!r} is not served here, only {served!r}")
