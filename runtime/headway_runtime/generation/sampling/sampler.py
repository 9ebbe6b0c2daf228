"""The next tokens of all answers of a step, each by its own rows of logits.

A row is treated by itself, in arithmetic over all of its V logits at once: rows are few and long, and one of them fits
in a core's cache where all of them do not.

Speculation changes nothing but the number of rows: the token of each position is drawn as it would be anyway, with the
numbers of that position, and compared with the draft. As long as they are equal, the next row was computed for what the
answer really says, and counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headway_runtime.errors import RequestError, ServeError
from headway_runtime.generation.constraints import Constraints
from headway_runtime.generation.sampling.adjust import adjust
from headway_runtime.generation.sampling.draw import draw
from headway_runtime.generation.sampling.lanes import Row, padded
from headway_runtime.generation.sampling.logprobs import LEAST, token_logprob
from headway_runtime.generation.sampling.randomness import key
from headway_runtime.generation.sampling.state import State
from headway_runtime.generation.values import Generate, TokenLogprob, Tokens


@dataclass(frozen=True, slots=True)
class Ask:
    """Rows `first .. first + len(drafts)` of the logits are this answer's: after what it has, after each draft."""

    state: State
    first: int
    drafts: Tokens = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The accepted drafts and one more token; without it, when the last accepted draft ends the answer.

    `finite` is False when a logit that had to be looked at was NaN or infinite; those count as the least likely.
    `error`: the answer cannot go on; its tokens so far are good.
    """

    tokens: Tokens
    logprobs: tuple[TokenLogprob, ...]
    accepted: int
    finite: bool = True
    error: RequestError | None = None


class Sampler:
    """For one thread. `vocabulary`: V, logits of a row."""

    def __init__(self, vocabulary: int, constraints: Constraints | None = None) -> None:
        self._vocabulary = vocabulary
        self._constraints = constraints
        self._row = np.empty(padded(vocabulary), np.float32)

    def open(self, generate: Generate, index: int) -> State:
        """The state of answer `index`. Raises InvalidRequestError: no constraint like this can be kept (told already
        when it was prepared: `Constraints.prepare`).
        """
        matcher = None
        if (constraint := generate.sampling.constraint) is not None:
            if self._constraints is None:
                raise ServeError("a constraint was asked for, and the sampler was made without them")
            matcher = self._constraints.prepare(constraint).open()
        return State(generate, index, vocabulary=self._vocabulary, matcher=matcher)

    def sample(self, logits: torch.Tensor, asks: Sequence[Ask]) -> list[Chosen]:
        """Choose, and move the states on. `logits`: float32 [L, V], on any device; it is not changed."""
        rows = logits.detach().cpu().numpy()
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return [self._advance(rows, ask) for ask in asks]

    def guess(self, logits: torch.Tensor, states: Sequence[State], ahead: Sequence[Tokens]) -> list[int]:
        """What a draft program thinks is drawn next: one row of its logits, float32 [R, V], for each answer, after the
        tokens that were guessed before (`ahead`). It is drawn as the answer's token will be, with the same random
        numbers: two distributions that are alike then choose the same token. The states stay as they are.
        """
        rows = logits.detach().cpu().numpy()
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return [self._guess(*each) for each in zip(rows, states, ahead, strict=True)]

    def _advance(self, rows: Row, ask: Ask) -> Chosen:
        state, drafts = ask.state, ask.drafts
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        finite, accepted = True, 0
        while not state.ended:
            logits = rows[ask.first + accepted]
            try:
                token, fine = self._choose(logits, state)
                state.advance(token)
            except RequestError as error:
                return Chosen(tuple(tokens), tuple(logprobs), accepted, finite, error)
            finite &= fine
            tokens.append(token)
            if state.logprobs is not None:
                logprobs.append(token_logprob(logits, token, state.logprobs, self._row))
            if accepted == len(drafts) or token != drafts[accepted]:
                break
            accepted += 1
            if token in state.stop_tokens:
                break
        return Chosen(tuple(tokens), tuple(logprobs), accepted, finite)

    def _choose(self, logits: Row, state: State) -> tuple[int, bool]:
        """A token, and whether the logits were finite (-inf is, where others are: a program may rule tokens out)."""
        if state.plain:
            token = int(logits.argmax())
            if np.isfinite(logits[token]):
                return token, True
        row = self._row
        fine = bool(np.isfinite(logits.max()))
        np.fmax(logits, LEAST, out=row[: logits.size])
        row[logits.size :] = -np.inf
        if not fine:
            row[np.flatnonzero(row == np.inf)] = LEAST
        adjust(row, state)
        if state.sampling.greedy:
            return int(row.argmax()), fine
        return draw(row, float(row.max()), state.sampling, key(state.seed, state.index, state.position)), fine

    def _guess(self, logits: Row, state: State, ahead: Tokens) -> int:
        with state.supposing(ahead):
            return self._choose(logits, state)[0]
