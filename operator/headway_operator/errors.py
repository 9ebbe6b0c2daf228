"""What can go wrong at the API server, by what to do about it.

ClusterError
├── TransientError          the server is away, overloaded or slow: try again later
├── ConflictError           the object changed meanwhile: look again at once
├── GoneError               the object, or its kind, is not there
├── NamespaceTerminatingError  nothing can be created any more: the end is near, stop quietly
├── ForeignObjectError      an object of our name is not ours: leave it alone and tell the user
└── RejectedError           the server refuses what we send, or us: trying again changes nothing
"""

import json
from typing import Any


class ClusterError(Exception):
    """A call to the API server that failed.

    `status` is the HTTP status, 0 when there was no answer; `words` are the server's own.
    """

    def __init__(self, message: str, *, status: int = 0, words: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.words = words or message


class TransientError(ClusterError):
    """The server is away, overloaded or slow. `retry_after` is its own wish in seconds, if it said one."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class ConflictError(ClusterError):
    """The object is another one, or a newer one, than the call was meant for."""


class AlreadyExistsError(ConflictError):
    """An object of this name is already there."""


class PredecessorError(ConflictError):
    """The object is still of an owner of the same name that was deleted. `reference` is `Kind/name`."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"{reference} belongs to an owner that is gone")
        self.reference = reference


class GoneError(ClusterError):
    """The object, or its kind, is not there."""


class NamespaceTerminatingError(ClusterError):
    """The namespace is being deleted; nothing can be created in it."""


class ForeignObjectError(ClusterError):
    """An object of our name belongs to somebody else. `reference` is `Kind/name`."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"{reference} exists and was not made by this operator for this owner; it is left alone")
        self.reference = reference


class RejectedError(ClusterError):
    """The server refuses the object (422, or 400 for a field that it does not know) or the operator's rights (403)."""


def from_response(status: int, body: bytes, *, call: str, retry_after: str | None = None) -> ClusterError:
    """The error of an answer that is not 2xx. `call` names what was asked, for the message."""
    answer = _status_object(body)
    words = str(answer.get("message") or body[:200].decode(errors="replace"))
    message = f"{call}: {status} {words}"
    if status in (408, 429) or status >= 500:
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
        return TransientError(message, status=status, retry_after=seconds)
    causes = (answer.get("details") or {}).get("causes") or []
    if status in (403, 409) and any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return NamespaceTerminatingError(message, status=status)
    if status == 409:
        return (AlreadyExistsError if answer.get("reason") == "AlreadyExists" else ConflictError)(
            message, status=status
        )
    if status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes):  # a patch's precondition
        return ConflictError(message, status=status)
    if status in (404, 410):
        return GoneError(message, status=status)
    if status == 401:  # a token that is just being rotated
        return TransientError(message, status=status)
    return RejectedError(message, status=status, words=words)


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
