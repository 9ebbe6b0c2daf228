"""What the steps share."""

from collections.abc import Callable
from typing import Any, TypeAlias

from headway_runtime.errors import InvalidRequestError, RequestError
from headway_runtime.logs import log
from headway_runtime.serving.values import BytesArray, Call, Given, Value

Core: TypeAlias = Callable[[Given, Call], None]
"""Answers a request by one call of `Call.done`, or raises RequestError."""


def go_on(call: Call, function: Callable[..., None], *args: Any) -> None:
    """Run what comes next, once an answer has come back: nobody is there to catch what it raises but the call."""
    try:
        function(*args)
    except RequestError as error:
        call.done(error)
    except Exception as error:
        log("step_failed", level="error", error=error)
        call.done(RequestError(f"internal error: {type(error).__name__}; the pod's log has more"))


def items_of(name: str, value: Value) -> tuple[bytes, ...]:
    """One item for each row. Raises InvalidRequestError."""
    if not isinstance(value, BytesArray):
        raise InvalidRequestError(f"input {name!r}: 'datatype' must be BYTES")
    if not value.shape or value.shape[0] != len(value.items):  # [rows], or [rows, 1, …]
        raise InvalidRequestError(f"input {name!r}: 'shape' must be [rows], not {list(value.shape)}")
    return value.items


def texts_of(name: str, value: Value) -> list[str]:
    """One text for each row. Raises InvalidRequestError."""
    texts: list[str] = []
    for row, item in enumerate(items_of(name, value)):
        try:
            texts.append(item.decode())
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"input {name!r}, text {row}: not UTF-8, at byte {error.start}") from None
    return texts
