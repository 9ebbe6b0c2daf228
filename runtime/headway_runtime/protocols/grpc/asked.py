"""From the bytes of a ModelInferRequest to what it asks. Pure, and never raises: a long one is read in a thread, and
one of a stream must be answered.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf.message import DecodeError

from headway_runtime.errors import InvalidRequestError, RequestError, TooLargeError, UnknownModelError
from headway_runtime.protocols.grpc import bounds, tensors
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.serving.values import Given

_MICROSECONDS = "timeout"  # Triton's parameter of a request
_ASKS_FOR_FINAL = "triton_enable_empty_final_response"
_OF_TRITON = frozenset({_MICROSECONDS, _ASKS_FOR_FINAL, "priority", "sequence_id", "sequence_start", "sequence_end"})
_RAW, _LENGTH_DELIMITED = 7, 2  # raw_input_contents, and how the wire has it
_FIXED = {1: 8, 5: 4}  # bytes of the wire's other types; of type 0 a varint
_LONGEST_VARINT = 10
_NONE: Mapping[str, bool | int | float | str] = MappingProxyType({})


class Asked(NamedTuple):
    """`seconds`: what Triton's parameter allows (None: nothing said); `final`: an empty last answer is asked for;
    `parameters`: those that are not Triton's own.
    """

    given: Given | RequestError
    identifier: str = ""
    raw: bool = True
    seconds: float | None = None
    final: bool = False
    parameters: Mapping[str, bool | int | float | str] = _NONE


def read(message: bytes | memoryview, model: str, revision: str) -> Asked:
    """What a message asks of this model, or why it is refused."""
    try:
        if len(message) > bounds.MAX_STRUCTURED:
            _check_structure(message)
        request: pb.ModelInferRequest = pb.ModelInferRequest.FromString(message)
    except DecodeError as error:
        return Asked(InvalidRequestError(f"the message is no ModelInferRequest: {error}"))
    except RequestError as error:
        return Asked(error)
    try:
        check(model, revision, request.model_name, request.model_version)
        given: Given | RequestError = tensors.given(request)
    except RequestError as error:
        given = error
    final = _ASKS_FOR_FINAL in request.parameters and request.parameters[_ASKS_FOR_FINAL].bool_param
    raw = bool(request.raw_input_contents)
    parameters = _parameters(request) if request.parameters else _NONE
    return Asked(given, request.id, raw, _seconds(request), final, parameters)


def check(model: str, revision: str, name: str, version: str) -> None:
    """Raises UnknownModelError for another model or version than this pod's."""
    if name != model or version not in ("", revision):
        asked = f"{name[:100]!r}" + (f", version {version[:100]!r}," if version else "")
        raise UnknownModelError(
            f"model {asked} is not served here: this pod serves model {model!r}, version {revision!r}"
        )


def _parameters(request: pb.ModelInferRequest) -> dict[str, bool | int | float | str]:
    found = {}
    for name, parameter in request.parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is not None and name not in _OF_TRITON:
            found[name] = getattr(parameter, kind)
    return found


def _seconds(request: pb.ModelInferRequest) -> float | None:
    if _MICROSECONDS not in request.parameters:
        return None
    parameter = request.parameters[_MICROSECONDS]
    given = parameter.int64_param or parameter.uint64_param
    return given / 1e6 if given > 0 else None  # 0: none


def _check_structure(message: bytes | memoryview) -> None:
    """The parser of protocol buffers cannot be interrupted, and makes eight bytes of one: raw bytes are what it takes
    at the speed of memory. Raises TooLargeError, DecodeError.
    """
    at = structured = 0
    for _ in range(bounds.MAX_FIELDS):
        if at >= len(message):
            return
        begin = at
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            size, at = _varint(message, at)
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            _, at = _varint(message, at)
        structured += 0 if tag >> 3 == _RAW else at - begin
        if structured > bounds.MAX_STRUCTURED:
            raise TooLargeError(
                f"more than {bounds.MAX_STRUCTURED} bytes beside raw_input_contents; send large tensors in those"
            )
    raise TooLargeError(f"more than {bounds.MAX_FIELDS} fields; a request has one for each tensor")


def _varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises DecodeError."""
    value = 0
    for place, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise DecodeError("a number does not end")
