"""Constraints are compiled once, within bounds, by whoever calls: serving does it in a thread beside the event loop.

Compiling is Rust, which lets other threads run meanwhile.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher
from tokenizers import Tokenizer

from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.constraints import vocabulary as vocabulary_of
from headway_runtime.generation.constraints.compiling import Compiler
from headway_runtime.generation.constraints.matcher import Matcher
from headway_runtime.generation.values import Constraint

REMEMBERED = 32
"""Constraints that are kept compiled after their last request."""


@dataclass(frozen=True, slots=True)
class Prepared(Constraint):
    """The constraint, compiled. It takes the place of the other in the request, and lives as long."""

    compiled: LLMatcher = field(default=None, repr=False, compare=False)
    bits: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32), repr=False, compare=False)

    def open(self) -> Matcher:
        """For one answer."""
        return Matcher(self.compiled.deep_copy(), self.bits)


class Constraints:
    """Of one program. `vocabulary`: logits of a token; `end`: the tokens that end an answer which is complete.

    Safe to use from several threads; what it prepares is opened and used by one, the engine's.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocabulary: int, end: Sequence[int]) -> None:
        """Reads the vocabulary, which takes a second or two for a large one."""
        self._tokenizer = vocabulary_of.read(tokenizer, vocabulary=vocabulary, end=end)
        self._bits = np.zeros(-(-vocabulary // 32), np.int32)
        self._known: OrderedDict[Constraint, Prepared] = OrderedDict()
        self._compiler = Compiler()
        self._lock = threading.Lock()

    def prepare(self, constraint: Constraint) -> Prepared:
        """The same, compiled. Takes a millisecond for most, ten seconds at most.

        Raises InvalidRequestError; QueueFullError: another's takes too long.
        """
        if isinstance(constraint, Prepared):
            return constraint
        if self._tokenizer is None:
            raise InvalidRequestError("this model's answers cannot be constrained: its tokenizer is of another kind")
        with self._lock:
            if (known := self._known.get(constraint)) is not None:
                self._known.move_to_end(constraint)
                return known
        prepared = Prepared(
            constraint.kind, constraint.text, self._compiler.compiled(constraint, self._tokenizer), self._bits
        )
        with self._lock:
            self._known[constraint] = prepared
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return prepared
