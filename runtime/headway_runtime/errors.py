"""Every way in which serving can end badly, in one tree.

ServeError
├── FatalError          the pod cannot serve this revision: it says why in its termination message and exits
└── RequestError        one request is answered with an error, the pod goes on
    ├── InvalidRequestError      400  the request is wrong; the message names the input and what is allowed
    │                                 (MalformedError: not even HTTP)
    ├── UnknownModelError        404  another model, or another revision, than this pod serves
    ├── TooLargeError            413  more bytes than this pod ever admits
    ├── UnsupportedEncodingError 415  a form of the request that this pod does not read
    ├── QueueFullError           429  no room now; `retry_after` seconds; or none to read it (BodiesFullError),
    │                                it would come too late (OverloadedError)
    ├── ProgramFailedError       500  the program raised on this request alone; or its answer is not finite, and the
    │                                 user wants no such answer (NonFiniteError)
    ├── NotServingError          503  loading, warming, or ending: no model has seen the request; or it ended in the
    │                                 midst of the answer (CutShortError)
    └── DeadlineExceededError    504  it did not start in time, or had not arrived in full (SlowBodyError)
"""

from headway_api.podconfig import Termination


class ServeError(Exception):
    """Base of all of them."""


class FatalError(ServeError):
    """The pod cannot serve. `condition` and `reason` become a status condition, `field` is the field at fault."""

    def __init__(self, reason: str, message: str, *, condition: str = "Ready", field: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.condition = condition
        self.field = field

    def termination(self) -> Termination:
        """The same, as the operator reads it."""
        return Termination(reason=self.reason, message=self.message, condition=self.condition, field=self.field)


class RequestError(ServeError):
    """Answered with `status` and the message; `kind` labels it in the metrics."""

    status = 500
    kind = "internal"
    admitted = True
    """False when no model has seen the request: it may be sent to another pod."""
    closes = False
    """True when the connection ends with the answer: the pod is ending, or the rest of the request is not read."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that only this kind of answer has."""
        return []


class InvalidRequestError(RequestError):
    """The message names what is wrong, where, and what is allowed."""

    status = 400
    kind = "invalid"


class MalformedError(InvalidRequestError):
    """The stream of bytes is not what its protocol says: nothing after this can be read."""

    kind = "malformed"
    closes = True


class UnknownModelError(RequestError):
    """The path names another model or revision."""

    status = 404
    kind = "unknown_model"


class TooLargeError(RequestError):
    """The body, or its decoded inputs, can never be admitted."""

    status = 413
    kind = "too_large"
    closes = True


class UnsupportedEncodingError(RequestError):
    """The message says which encodings are read."""

    status = 415
    kind = "unsupported_encoding"


class QueueFullError(RequestError):
    """The waiting line is full. `retry_after` is in whole seconds, at least 1."""

    status = 429
    kind = "queue_full"
    admitted = False

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Says when to come back."""
        return [(b"retry-after", str(self.retry_after).encode())]


class OverloadedError(QueueFullError):
    """What waits already would last beyond the request's deadline."""

    kind = "overloaded"


class ProgramFailedError(RequestError):
    """The program raised; the message is its own."""

    kind = "program_failed"


class NonFiniteError(ProgramFailedError):
    """The answer holds NaN or infinity, and `spec.batching.nonFinite` is Reject. 500 and not 422: in most cases the
    model is at fault (a candidate in a canary above all), and 500 is what rollouts and alerts count as its failure.
    """

    kind = "non_finite"


class NotServingError(RequestError):
    """This pod does not serve now; the message says what it is doing."""

    status = 503
    kind = "not_serving"
    admitted = False
    closes = True


class CutShortError(NotServingError):
    """The pod ended before the answer was complete: the drain took as long as it may. No failure of the model's, which
    has seen the request.
    """

    kind = "cut_short"
    admitted = True

    def __init__(self) -> None:
        super().__init__(
            "the pod ended before this answer was complete; send the request again, or give pods more time "
            "(spec.template.drainTimeout)"
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Another pod may answer it at once."""
        return [(b"retry-after", b"1")]


class DeadlineExceededError(RequestError):
    """It waited longer than `queue.timeout`, or than its own deadline."""

    status = 504
    kind = "deadline"


class SlowBodyError(DeadlineExceededError):
    """The deadline passed before the request had arrived in full."""

    kind = "slow_body"
    closes = True


class BodiesFullError(QueueFullError):
    """Too many bytes of other requests are being read."""

    kind = "bodies_full"
    closes = True


def first_line(error: BaseException, most: int = 500) -> str:
    """What an exception says first, in at most so many characters; torch's go on with traces of their own."""
    return (str(error).strip().splitlines() or [""])[0][:most]
