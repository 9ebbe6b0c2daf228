"""Errors as gRPC answers them: a status, a message, and what a client or a router needs to go on."""

from headway_api.names import NOT_ADMITTED_HEADER

from headway_runtime.errors import RequestError
from headway_runtime.logs import log
from headway_runtime.protocols.grpc.exchange import Exchange, Header
from headway_runtime.protocols.grpc.wire import Status, WireError, status_of

_NOT_ADMITTED: Header = (NOT_ADMITTED_HEADER.encode(), b"1")


def refuse(exchange: Exchange, error: Exception) -> None:
    """Answer a call with an error; one that is none of ours is logged and hidden."""
    if isinstance(error, RequestError):
        if exchange.receiver is not None:
            exchange.receiver.refused = error
        exchange.finish(status_of(error.status), str(error), metadata_of(error))
    elif isinstance(error, WireError):
        exchange.finish(error.status, str(error))
    else:
        log("request_failed", level="error", error=error)
        exchange.finish(Status.INTERNAL, str(hidden(error)))


def hidden(error: Exception) -> RequestError:
    """What a client hears of an error that is none of ours."""
    return RequestError(f"internal error: {type(error).__name__}; the pod's log has more")


def metadata_of(error: RequestError) -> list[Header]:
    """Whether to come back, and when."""
    return error.headers() + ([] if error.admitted else [_NOT_ADMITTED])
