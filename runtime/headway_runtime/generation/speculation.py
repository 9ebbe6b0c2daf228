"""How many tokens to propose, and prompt lookup, which proposes them without a model. Pure.

A draft that is accepted saves a run of the program; one that is refused costs a row of one. So each answer proposes as
many as were worth it lately: all accepted, twice as many; else one more than were accepted; after several failures,
one only now and then, to see whether it goes better.
"""

from array import array

from headway_runtime.generation.sequence import Sequence
from headway_runtime.generation.values import Tokens

SELDOM = 1 / 8
_LENGTHS = (4, 3, 2)  # of what is looked up; the longest that is found counts


def grant(sequence: Sequence, most: int) -> int:
    """Drafts that may be proposed now."""
    return min(most, int(sequence.pace))


def learn(sequence: Sequence, drafted: int, accepted: int, most: int) -> None:
    """What came of it: so many were proposed in a step, and so many accepted."""
    if not drafted:
        if sequence.pace < 1:
            sequence.pace += SELDOM
    elif accepted == drafted:
        sequence.pace = min(float(most), max(2.0, 2 * sequence.pace))
    elif accepted:
        sequence.pace = min(float(most), accepted + 1.0)
    else:
        sequence.pace = sequence.pace / 2 if sequence.pace > 1 else SELDOM


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
        """At most so many tokens."""
        for end in self._before:
            if end is not None:
                return tuple(self._tokens[end : end + most])
        return ()
