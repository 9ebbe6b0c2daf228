"""The step `text`: a BYTES input of texts becomes ids, mask and types.

Short texts are tokenized on the spot: that costs less than handing them to a thread and back. Long ones, and all
of a tokenizer whose author's patterns may take for ever, are tokenized by the crew, those that wait together in one
call.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from headway_runtime.errors import InvalidRequestError, RequestError, TooLargeError
from headway_runtime.prepare.beside.steps import Text
from headway_runtime.program import TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.serving.steps.crew import Crew, Hand, Job, Timed, failed
from headway_runtime.serving.steps.lengths import Lengths
from headway_runtime.serving.steps.pieces import Joining, divide
from headway_runtime.serving.steps.tokens import Tokenizer, Tokens
from headway_runtime.serving.steps.values import Core, go_on, texts_of
from headway_runtime.serving.values import Call, Given, Reply

MAX_TEXT = 1 << 20  # characters of one text
ON_THE_SPOT = 1 << 10  # characters of a request's texts: about 250 tokens, 0.3 ms
TURN = 1 << 17  # characters that are tokenized in one call
MOST = 64  # requests of one call

Encoded = Callable[[list[Tokens] | RequestError | None], None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The tensors that a text becomes, as the program has them, and what fills up the ids of shorter texts."""

    ids: TensorSpec
    mask: TensorSpec | None
    types: TensorSpec | None
    filler: int


class TextStep:
    """`axes`: the axis of rows of each output whose answers can be put together again."""

    def __init__(
        self,
        declared: Text,
        tokenizer: Tokenizer,
        inputs: Inputs,
        lengths: Lengths,
        hand: Hand,
        timed: Timed,
        *,
        axes: dict[str, int],
        outputs: Sequence[str],
        threads: int,
    ) -> None:
        self.declared = declared
        self.lengths = lengths
        self.vocabulary = tokenizer.size
        self._tokenizer, self._inputs = tokenizer, inputs
        self._axes, self._outputs, self._timed = axes, tuple(outputs), timed
        if declared.truncate:
            tokenizer.cut_at(lengths.longest)
        self.crew: Crew[list[str], list[Tokens]] = Crew(
            "text", self._work, hand, timed, threads=threads, most=MOST, bytes=TURN
        )

    @property
    def input(self) -> str:
        """The name of its BYTES input."""
        return self.declared.input

    @property
    def fills(self) -> tuple[str, ...]:
        """The inputs that it gives."""
        return self.declared.fills

    def call(self, given: Given, call: Call, then: Core) -> None:
        """Go on with tensors. Raises RequestError."""
        name = self.input
        instead = [fill for fill in self.declared.fills if fill in given.inputs]
        if instead:
            raise InvalidRequestError(f"input {instead[0]!r} is made from {name!r}: give one of them")
        texts = texts_of(name, given.inputs[name])
        if len(texts) > self.crew.capacity:  # its pieces would be told to come back, in vain
            limit = f"at most {self.crew.capacity} are ever admitted (spec.batching.queue.capacity)"
            raise TooLargeError(f"input {name!r}: {len(texts)} texts; {limit}")
        rest = {other: value for other, value in given.inputs.items() if other != name}

        def encoded(tokens: list[Tokens] | RequestError | None) -> None:
            if isinstance(tokens, list):
                go_on(call, self._go_on, replace(given, inputs=rest), tokens, call, then)
            else:
                call.done(tokens)

        self.encode(texts, call, encoded)

    def encode(self, texts: list[str], call: Call, done: Encoded) -> None:
        """Tokens of each text, each of an allowed length, by one call of `done`. Raises RequestError."""
        size = 0
        for row, text in enumerate(texts):
            if len(text) > MAX_TEXT:
                where = f"input {self.declared.input!r}, text {row}"
                raise TooLargeError(f"{where}: {len(text)} characters; at most {MAX_TEXT} are tokenized")
            size += len(text)
        if size <= ON_THE_SPOT and self._tokenizer.linear:
            done(self._checked(self._at_once(texts)))
            return

        def tokenized(tokens: list[Tokens] | RequestError | None) -> None:
            try:
                done(self._checked(tokens) if isinstance(tokens, list) else tokens)
            except RequestError as error:
                done(error)

        self.crew.submit(Job(texts, size, call, tokenized))

    def tensors(self, tokens: Sequence[Tokens]) -> dict[str, torch.Tensor]:
        """Inputs of one run, each [rows, length]: shorter texts are filled up to the longest."""
        longest = max((len(each.ids) for each in tokens), default=0)
        shape = len(tokens), self.lengths.fitting[longest]
        found = {self._inputs.ids.name: _filled(self._inputs.ids, shape, self._inputs.filler, [t.ids for t in tokens])}
        if self._inputs.mask is not None:
            ones = [[1] * len(each.ids) for each in tokens]
            found[self._inputs.mask.name] = _filled(self._inputs.mask, shape, 0, ones)
        if self._inputs.types is not None:
            found[self._inputs.types.name] = _filled(self._inputs.types, shape, 0, [t.types for t in tokens])
        return found

    def pieces(self, tokens: Sequence[Tokens], outputs: Sequence[str] | None) -> list[list[int]]:
        """Which rows run together. Raises InvalidRequestError."""
        joinable = all(output in self._axes for output in outputs or self._outputs)
        return divide([len(each.ids) for each in tokens], self.lengths, joinable=joinable)

    def _at_once(self, texts: list[str]) -> list[Tokens]:
        began = time.monotonic()
        try:
            tokens = self._tokenizer.encode(texts)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of Rust code is no Exception
            raise failed("text", error) from None
        self._timed("text", time.monotonic() - began)
        return tokens

    def _work(self, payloads: Sequence[list[str]]) -> list[list[Tokens] | RequestError]:
        tokens = iter(self._tokenizer.encode([text for texts in payloads for text in texts]))
        return [[next(tokens) for _ in texts] for texts in payloads]

    def _checked(self, tokens: list[Tokens]) -> list[Tokens]:
        for row, each in enumerate(tokens):
            length = len(each.ids)
            if length > self.lengths.longest:
                where = f"input {self.declared.input!r}, text {row}"
                raise InvalidRequestError(
                    f"{where}: {length} tokens; at most {self.lengths.longest} are taken ({self.lengths.why})"
                )
            if not length or not self.lengths.fitting[length]:
                where = f"input {self.declared.input!r}, text {row}"
                raise InvalidRequestError(f"{where}: the program takes no text of {length} tokens")
        return tokens

    def _go_on(self, given: Given, tokens: list[Tokens], call: Call, then: Core) -> None:
        cut = sum(each.cut for each in tokens)
        call = _saying(call, cut) if cut else call
        pieces = self.pieces(tokens, given.outputs)
        if len(pieces) == 1:
            then(replace(given, inputs={**given.inputs, **self.tensors(tokens)}), call)
            return
        if given.inputs:
            raise InvalidRequestError(
                f"texts of different lengths beside other inputs ({', '.join(given.inputs)}): send them one by one"
            )
        joining = Joining(pieces, self._axes, call)
        for number, rows in enumerate(pieces):
            part = replace(given, inputs=self.tensors([tokens[row] for row in rows]))
            if not joining.over:
                go_on(piece := joining.piece(number), then, part, piece)


def _saying(call: Call, cut: int) -> Call:
    """The same; the reply says how many texts were cut."""

    def done(result: Reply | RequestError | None) -> None:
        if isinstance(result, Reply):
            result = replace(result, parameters={**result.parameters, "truncated": cut})
        call.done(result)

    return replace(call, done=done)


def _filled(spec: TensorSpec, shape: tuple[int, int], filler: int, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    dtype = BY_PROTOCOL[spec.datatype]
    return torch.tensor([[*row, *[filler] * (shape[1] - len(row))] for row in rows], dtype=dtype).reshape(shape)
