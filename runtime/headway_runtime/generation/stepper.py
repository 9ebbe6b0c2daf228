"""One step of the engine's thread, without the lock: run what was planned, choose the next tokens, make their text."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer

from headway_runtime.errors import NonFiniteError, ProgramFailedError, RequestError, first_line
from headway_runtime.generation.answer import Answer
from headway_runtime.generation.drafting import Proposer
from headway_runtime.generation.forward import Decoder, Forward, Ran
from headway_runtime.generation.sampling import Ask, Chosen, Sampler, prompt_logprobs
from headway_runtime.generation.sequence import Request, Sequence
from headway_runtime.generation.step import Step, Work
from headway_runtime.generation.text import TextStream
from headway_runtime.generation.values import Piece
from headway_runtime.logs import log_seldom

NOT_FINITE = (
    "the program's logits for this request hold NaN or infinity, which spec.batching.nonFinite: Reject does not let "
    "pass; look at the precision of the weights (spec.precision) and of the cache (cacheType)"
)


@dataclass(frozen=True, slots=True)
class Made:
    """What a step made of one answer. Without a work, it is a further answer to a prompt that another one ran; without
    a piece, only a part of the prompt was run.
    """

    answer: Answer
    work: Work | None
    piece: Piece | None = None
    accepted: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of a step."""

    made: list[Made] = field(default_factory=list)
    failed: list[tuple[Request, RequestError]] = field(default_factory=list)
    retried: int = 0
    non_finite: int = 0

    def fail(self, request: Request, error: RequestError) -> None:
        """The request ends with its first error."""
        if all(request is not other for other, _ in self.failed):
            self.failed.append((request, error))


class Stepper:
    """For one thread. `answers`: of the requests that have begun, by the numbers of their sequences."""

    def __init__(
        self, decoder: Decoder, sampler: Sampler, tokenizer: Tokenizer, proposer: Proposer | None = None
    ) -> None:
        self.reject_non_finite = False
        self._decoder = decoder
        self._forward = Forward(decoder)
        self._sampler = sampler
        self._tokenizer = tokenizer
        self._proposer = proposer
        self._answers: dict[int, Answer] = {}

    def forget(self, request: Request) -> None:
        """It has ended."""
        for sequence in request.sequences:
            self._answers.pop(sequence.id, None)

    def run(self, step: Step) -> Outcome:
        """Everything that the step makes; whose state is the scheduler's is not changed."""
        outcome = Outcome()
        unable = {id(request) for request in step.begun if not self._open(request, outcome)}
        works = [work for work in step.works if id(work.sequence.request) not in unable]
        if step.copies:
            self._decoder.copy(step.copies)
        if self._proposer is not None and works:
            if step.copies:
                self._proposer.copy(step.copies)
            self._proposer.propose(works, self._answers)
        if works:
            ran = self._forward.run(works)
            outcome.retried = ran.retried
            for work, error in ran.failed:
                outcome.fail(work.sequence.request, error)
            self._choose(ran, outcome)
        return outcome

    def _open(self, request: Request, outcome: Outcome) -> bool:
        generate = request.generate
        try:
            for sequence in request.sequences:
                state = self._sampler.open(generate, sequence.index)
                text = TextStream(self._tokenizer, generate.stop, generate.skip_special_tokens)
                self._answers[sequence.id] = Answer(sequence, state, text)
        except Exception as error:
            outcome.fail(request, _as_request_error(error))
            return False
        return True

    def _choose(self, ran: Ran, outcome: Outcome) -> None:
        logits = ran.logits.cpu()
        for work, first in zip(ran.works, ran.firsts, strict=True):
            answer = self._answers[work.sequence.id]
            try:
                if work.tells_prompt:
                    first += _tell_prompt(work, logits[first : first + work.count])
                if not work.samples:
                    outcome.made.append(Made(answer, work))
                    continue
                for sequence in _whose(work):
                    ask = Ask(self._answers[sequence.id].state, first, work.drafts)
                    made = self._make(work, sequence, self._sampler.sample(logits, [ask])[0], outcome)
                    outcome.made.append(made)
            except Exception as error:
                outcome.fail(work.sequence.request, _as_request_error(error))

    def _make(self, work: Work, sequence: Sequence, chosen: Chosen, outcome: Outcome) -> Made:
        answer = self._answers[sequence.id]
        if not chosen.finite:
            outcome.non_finite += 1
            if self.reject_non_finite:
                raise NonFiniteError(NOT_FINITE)
        if chosen.error is not None:
            outcome.fail(sequence.request, chosen.error)
        piece = answer.piece(chosen)
        own = work if sequence is work.sequence else None
        return Made(answer, own, piece, min(chosen.accepted, len(piece.tokens)))


def _whose(work: Work) -> Iterator[Sequence]:
    """Whose next tokens come of this work: the sequence's own, and those that wait for its prompt."""
    yield work.sequence
    if work.sequence.index == 0 and not work.sequence.answer:
        yield from (sequence for sequence in work.sequence.request.sequences if sequence.follows)


def _tell_prompt(work: Work, logits: torch.Tensor) -> int:
    """Keep what the program thought of the prompt's tokens; `logits`, [count, V], are of the work's rows. Returns how
    many rows of them come before the one that goes on with the answer.
    """
    sequence = work.sequence
    request = sequence.request
    told = request.prompt_logprobs
    if not told:
        told.append(None)  # nothing predicts the first token
    tokens = sequence.tokens[len(told) : min(work.start + work.count + 1, sequence.prompt)]
    begin = len(told) - 1 - work.start  # a token is predicted by the row before it
    top = request.generate.prompt_logprobs or 0
    told.extend(prompt_logprobs(logits[begin : begin + len(tokens)], tokens, top))
    return work.count - 1


def _as_request_error(error: Exception) -> RequestError:
    """What belongs to one request must not end the engine."""
    if isinstance(error, RequestError):
        return error
    log_seldom("answer_failed", error_type=type(error).__name__)
    return ProgramFailedError(f"this request failed: {type(error).__name__}: {first_line(error)}")
