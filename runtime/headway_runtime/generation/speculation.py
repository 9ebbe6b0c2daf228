"""How many tokens to propose, and prompt lookup, which proposes them without a model. Pure.

A draft that is accepted saves a run of the program; one that is refused costs a row of one. Drafts count up to the
first that is refused, so the k-th is worth a row when all k are accepted with a chance of at least WORTH, by what came
of those of the same answer lately. Where not even the first is, one is tried now and then, to see whether it goes
better.
"""

from array import array
from math import log

from headway_runtime.generation.sequence import Sequence
from headway_runtime.generation.values import Tokens

WORTH = 0.3
REST = 8  # steps between two tries that are not expected to go well
WEIGHT = 0.1  # of the latest draft
_LENGTHS = (4, 3, 2)  # of what is looked up; the longest that is found counts


def grant(sequence: Sequence, most: int) -> int:
    """Drafts that may be proposed now."""
    chance = sequence.acceptance
    if chance < WORTH:
        return int(sequence.rested >= REST)
    return min(most, int(log(WORTH) / log(min(chance, 0.99))))


def learn(sequence: Sequence, drafted: int, accepted: int) -> None:
    """So many were proposed in a step, and so many of them accepted."""
    if not drafted:
        sequence.rested += 1
        return
    sequence.rested = 0
    counted = min(drafted, accepted + 1)
    sequence.acceptance += (1 - (1 - WEIGHT) ** counted) * (accepted / counted - sequence.acceptance)


class PromptLookup:
    """What followed the latest tokens when they came before, in the same sequence (Saxena, 2023).

    Tokens are added as they come; each costs a constant time, and so does a proposal.
    """

    def __init__(self) -> None:
        self._tokens = array("q")
        self._ends: tuple[dict[Tokens, int], ...] = tuple({} for _ in _LENGTHS)
        self._before: list[int | None] = [None] * len(_LENGTHS)  # where what ends the sequence has ended before

    def extend(self, tokens: "array[int]") -> None:
        """All tokens of the sequence, of which some are known already."""
        for token in tokens[len(self._tokens) :]:
            self._tokens.append(token)
            end = len(self._tokens)
            for number, length in enumerate(_LENGTHS):
                if end >= length:
                    words = tuple(self._tokens[end - length : end])
                    self._before[number] = self._ends[number].get(words)
                    self._ends[number][words] = end

    def propose(self, most: int) -> Tokens:
        """So many tokens, or none. What repeats itself is supposed to go on repeating itself."""
        for end in self._before:
            if end is not None:
                period = len(self._tokens) - end
                return tuple([self._tokens[end + number % period] for number in range(most)])
        return ()
