"""ModelStreamInfer of a model that generates text, as Triton's vLLM backend has it: each request is answered by a
stream of `text_output`, one message for each step. Requests of one call run beside one another; their ids tell whose
an answer is. An error is an answer, and ends nothing.

    inputs      text_input BYTES [1]; stream BOOL [1]; exclude_input_in_output BOOL [1]; sampling_parameters BYTES [1]
    parameters  max_tokens, temperature, ...: those of /v1/completions, as numbers or as texts
    outputs     text_output BYTES [n]; the parameter `triton_final_response` is true in a request's last
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
import torch

from headway_runtime.errors import InvalidRequestError, QueueFullError, RequestError
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import Piece, Stream, Usage
from headway_runtime.protocols.grpc.asked import Asked, read
from headway_runtime.protocols.grpc.bounds import LARGE
from headway_runtime.protocols.grpc.exchange import Exchange
from headway_runtime.protocols.grpc.infer import allowed, priority
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.grpc.refusals import hidden
from headway_runtime.protocols.grpc.wire import Status
from headway_runtime.protocols.openai import completions
from headway_runtime.protocols.openai.prompts import Prompt, prompts_of
from headway_runtime.protocols.openai.question import Question
from headway_runtime.protocols.pieces import json_object
from headway_runtime.serving.generate import GenerateService
from headway_runtime.serving.values import BytesArray, Value

MOST = 512  # requests of one call at a time
TEXT, OUTPUT = "text_input", "text_output"
_STREAM, _EXCLUDE, _SAMPLING = "stream", "exclude_input_in_output", "sampling_parameters"
_INPUTS = (TEXT, _STREAM, _EXCLUDE, _SAMPLING)
_FINAL = "triton_final_response"
_AS_TEXT = frozenset({"stop", "guided_regex", "guided_grammar"})  # fields whose texts are never numbers


class TextStream:
    """Receiver of one ModelStreamInfer call."""

    def __init__(self, service: GenerateService, exchange: Exchange, model: str, revision: str) -> None:
        self._service = service
        self._exchange = exchange
        self._model, self._revision = model, revision
        self._open: set[_Answer] = set()
        self._ended = False
        self._deadline = time.monotonic() + allowed(exchange.metadata, float("inf"))
        self._priority = priority(exchange.metadata)
        self.refused: RequestError | None = None

    def message(self, message: bytes | memoryview) -> None:
        """One request."""
        answer = _Answer(self._service.begin())
        self._open.add(answer)
        work = partial(read, message, self._model, self._revision)
        if len(message) > LARGE:
            self._exchange.aside(work, partial(self._ask, answer))
        else:
            self._ask(answer, work())

    def half_closed(self) -> None:
        """No more requests."""
        self._ended = True
        self._advance()

    def over(self, status: Status | None) -> None:
        """Nobody waits for what is still being made."""
        left, self._open = self._open, set()
        for answer in left:
            if answer.number is not None:
                self._service.cancel(answer.number)
            self._service.end(answer.began, None, "client_gone" if status is None else None)

    def _ask(self, answer: "_Answer", asked: Asked) -> None:
        answer.identifier = asked.identifier
        try:
            if isinstance(asked.given, RequestError):
                raise asked.given
            if len(self._open) > MOST:
                raise QueueFullError(f"{MOST} requests of this call are not answered; try again in 1 s", retry_after=1)
            facts, begin_by = self._service.facts, answer.began + self._service.allowed()
            answer.question = question = question_of(asked, self._model, facts)
        except RequestError as error:
            self._fail(answer, error)
            return
        if asked.seconds is not None:
            answer.deadline = answer.began + asked.seconds

        def prompts() -> list[Prompt] | Exception:
            try:
                return prompts_of(question, facts, begin_by, self._exchange.is_gone)
            except Exception as error:  # one request's, which ends no other
                return error

        self._exchange.aside(prompts, partial(self._begin, answer, begin_by))

    def _begin(self, answer: "_Answer", begin_by: float, found: list[Prompt] | Exception) -> None:
        if answer not in self._open:
            return
        try:
            if isinstance(found, Exception):
                raise found
            prompt = found[0]
            assert answer.question is not None
            answer.before = prompt.text.encode() if answer.question.echo else b""
            stream = Stream(
                min(self._deadline, answer.deadline),
                min(self._deadline, answer.deadline, begin_by),
                partial(self._pieces, answer),
                partial(self._over, answer),
                self._priority,
            )
            answer.texts = [b""] * prompt.generate.n
            answer.left = prompt.generate.n
            answer.number = self._service.start(prompt.generate, stream)
        except Exception as error:
            self._fail(answer, error if isinstance(error, RequestError) else hidden(error))

    def _pieces(self, answer: "_Answer", pieces: tuple[Piece, ...]) -> None:
        if answer not in self._open:
            return
        assert answer.question is not None
        for piece in pieces:
            answer.texts[piece.index] += piece.text.encode()
            answer.left -= piece.finish is not None
        if answer.question.stream and (any(answer.texts) or not answer.left):
            self._send(answer, final=not answer.left)

    def _over(self, answer: "_Answer", outcome: Usage | RequestError | None) -> None:
        if answer not in self._open:
            return
        assert answer.question is not None
        if not isinstance(outcome, Usage):
            self._fail(answer, outcome or RequestError("the request was given up"))
            return
        if not answer.question.stream:
            answer.texts = [answer.before + text for text in answer.texts]
            self._send(answer, final=True)
        self._account(answer, 200, None)

    def _send(self, answer: "_Answer", *, final: bool) -> None:
        message = pb.ModelStreamInferResponse()
        inner = message.infer_response
        inner.model_name, inner.model_version, inner.id = self._model, self._revision, answer.identifier
        inner.parameters[_FINAL].bool_param = final
        inner.outputs.add(name=OUTPUT, datatype="BYTES", shape=[len(answer.texts)])
        inner.raw_output_contents.append(b"".join(len(text).to_bytes(4, "little") + text for text in answer.texts))
        answer.texts = [b""] * len(answer.texts)
        self._exchange.send(message.SerializeToString())

    def _fail(self, answer: "_Answer", error: RequestError) -> None:
        message = pb.ModelStreamInferResponse(error_message=str(error))
        message.infer_response.id = answer.identifier
        message.infer_response.parameters[_FINAL].bool_param = True
        self._exchange.send(message.SerializeToString())
        self._account(answer, error.status, error)

    def _account(self, answer: "_Answer", status: int, refused: RequestError | None) -> None:
        if answer in self._open:  # which it is not, when the last message was one too many
            self._open.remove(answer)
            self._service.end(answer.began, status, refused)
            self._advance()

    def _advance(self) -> None:
        if self._ended and not self._open:
            self._exchange.finish(Status.OK)


class _Answer:
    """One request of a call."""

    __slots__ = ("before", "began", "deadline", "identifier", "left", "number", "question", "texts")

    def __init__(self, began: float) -> None:
        self.began = began
        self.deadline = float("inf")
        self.identifier = ""
        self.question: Question | None = None
        self.number: int | None = None  # of the service
        self.before = b""  # the prompt, where it is part of the text
        self.texts: list[bytes] = []  # what was not sent yet, of each of its answers
        self.left = 0  # answers that have not ended


def question_of(asked: Asked, model: str, facts: Facts) -> Question:
    """What a message asks of a decoder. Raises InvalidRequestError."""
    assert not isinstance(asked.given, RequestError)
    inputs = asked.given.inputs
    for name in inputs:
        if name not in _INPUTS:
            raise InvalidRequestError(f"input {name[:100]!r} is none of {', '.join(_INPUTS)}")
    for name in asked.given.outputs or ():
        if name != OUTPUT:
            raise InvalidRequestError(f"output {name[:100]!r} is not made; {OUTPUT} is")
    if TEXT not in inputs:
        raise InvalidRequestError(f"input {TEXT!r} is missing: the prompt, BYTES [1]")
    sampling: Mapping[str, Any] = asked.parameters
    if _SAMPLING in inputs:
        given, example = _text(_SAMPLING, inputs[_SAMPLING]), ', such as {"max_tokens": 100}'
        sampling = json_object(given, example, what=f"input {_SAMPLING!r}")
    stream = _flag(_STREAM, inputs.get(_STREAM), bool(sampling.get(_STREAM)))
    echo = not _flag(_EXCLUDE, inputs.get(_EXCLUDE), stream)  # without a stream, the backend begins with the prompt
    if echo and stream:
        raise InvalidRequestError(f"input {_EXCLUDE!r}: a stream never begins with the prompt")
    document = {name: _number(name, value) for name, value in sampling.items() if name != _STREAM}
    own = {"model": model, "prompt": _text(TEXT, inputs[TEXT]), "stream": stream, "echo": echo}
    if taken := sorted(own.keys() & document.keys()):
        raise InvalidRequestError(f"parameter {taken[0]!r} is none: it is an input")
    return completions.read({**document, **own}, facts)


def _text(name: str, value: Value) -> str:
    if not isinstance(value, BytesArray) or len(value.items) != 1:
        raise InvalidRequestError(f"input {name!r} must be BYTES with one element; send one request for each prompt")
    try:
        return value.items[0].decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input {name!r} is not UTF-8: {error.reason} at byte {error.start}") from None


def _flag(name: str, value: Value | None, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, torch.Tensor) or value.dtype != torch.bool or value.numel() != 1:
        raise InvalidRequestError(f"input {name!r} must be BOOL with one element")
    return bool(value.item())


def _number(name: str, value: Any) -> Any:
    """Clients send numbers as texts, too: \"0.1\"."""
    if not isinstance(value, str) or name in _AS_TEXT:
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
