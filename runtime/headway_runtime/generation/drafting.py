"""Who proposes tokens: what came before in the sequence, or a smaller program with a cache of its own.

The draft program's cache has the same blocks, so it needs no scheduler: tables and slots are the decoder's, what the
prefix cache finds there is found here, and what is copied there is copied here. It runs what the decoder runs, a prompt
in the same step, an answer when it has something to propose. Where its keys are behind (or, in a block that was found
after its request had ended early, stale), it guesses worse; what is answered does not depend on what is guessed.
"""

from array import array
from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import Protocol

from headway_runtime.errors import first_line
from headway_runtime.generation.answer import Answer
from headway_runtime.generation.assembly import Assembly, Part
from headway_runtime.generation.forward import Decoder
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.step import Work
from headway_runtime.generation.values import Tokens
from headway_runtime.logs import log_seldom
from headway_runtime.prepare.decoder import BLOCK_TOKENS

Answers = Mapping[int, Answer]  # by the numbers of their sequences


class Proposer(Protocol):
    """Puts drafts into works that have room for them. `copy`: blocks, as the decoder's were."""

    def copy(self, pairs: Many[tuple[int, int]]) -> None: ...
    def propose(self, works: Many[Work], answers: Answers) -> None: ...


class Lookup:
    """`speculation.PromptLookup` for each answer."""

    def copy(self, pairs: Many[tuple[int, int]]) -> None:
        """It has no blocks."""

    def propose(self, works: Many[Work], answers: Answers) -> None:
        """What followed the same tokens before."""
        for work in works:
            if work.room:
                answer = answers[work.sequence.id]
                answer.lookup.extend(work.sequence.tokens)
                work.drafts = answer.state.allowed(answer.lookup.propose(work.room))


class DraftProgram:
    """For one thread. `sampler` guesses what it will draw itself from the decoder's logits."""

    def __init__(self, decoder: Decoder, sampler: Sampler) -> None:
        self._decoder = decoder
        self._sampler = sampler
        self._assembly = Assembly()

    def copy(self, pairs: Many[tuple[int, int]]) -> None:
        """The same blocks of its own cache."""
        self._decoder.copy(pairs)

    def propose(self, works: Many[Work], answers: Answers) -> None:
        """One token after the other, for all answers at the same time. A failure costs nothing but these drafts."""
        try:
            self._propose([(work, answers[work.sequence.id]) for work in works])
        except Exception as error:
            log_seldom("draft_failed", error_type=type(error).__name__, error_message=first_line(error))

    def _propose(self, pairs: list[tuple[Work, Answer]]) -> None:
        for work, answer in pairs:
            answer.drafted = work.start if work.begins else min(answer.drafted, work.start)
        behind = [pair for pair in pairs if pair[0].room or not pair[0].samples or _fills_a_block(*pair)]
        if not behind:
            return
        drafts: dict[int, Tokens] = {}
        rows = [
            Part(work.sequence.tokens, work.sequence.blocks, answer.drafted, _lacking(work, answer), work.room > 0)
            for work, answer in behind
        ]
        going = [pair for pair in behind if pair[0].room]
        while rows:
            logits = self._decoder.step(self._assembly.join(rows))
            ahead = [drafts.get(work.sequence.id, ()) for work, _ in going]
            guessed = self._sampler.guess(logits, [answer.state for _, answer in going], ahead) if going else []
            for (work, _), before, token in zip(going, ahead, guessed, strict=True):
                drafts[work.sequence.id] = (*before, token)
            going = [pair for pair in going if len(drafts[pair[0].sequence.id]) < pair[0].room]
            rows = [_row(work, drafts[work.sequence.id]) for work, _ in going]
        for work, answer in behind:
            made = drafts.get(work.sequence.id, ())
            answer.drafted = work.start + work.count + max(0, len(made) - 1)
            work.drafts = answer.state.allowed(made)


def _lacking(work: Work, answer: Answer) -> int:
    """Tokens that the decoder will have run after this step, and the draft program has not."""
    return work.start + work.count - answer.drafted


def _fills_a_block(work: Work, answer: Answer) -> bool:
    """Whether the decoder fills a block that the draft program has not: others may find it after this step."""
    return (work.start + work.count) // BLOCK_TOKENS > answer.drafted // BLOCK_TOKENS


def _row(work: Work, drafts: Tokens) -> Part:
    """The latest draft, after the tokens of its sequence and the drafts before it."""
    at = len(work.sequence.tokens) + len(drafts) - 1
    return Part(array("q"), work.sequence.blocks, at, 0, 1, drafts[-1:])
