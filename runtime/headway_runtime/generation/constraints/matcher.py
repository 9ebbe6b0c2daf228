"""Where an answer is in its grammar."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.constraints.compiling import why

_ADDED = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1, 0, -np.inf)
_ADDED = _ADDED.astype(np.float32)
"""[256, 8]: what is added to the logits of eight tokens, by a byte of the mask."""


BEGINNING = 0.5  # seconds of processor time that an answer's masks may take, and
EACH = 0.005  # for each token: what a plain grammar needs a tenth of


class Matcher:
    """One answer, in the engine's thread. `bits`, int32 [ceil(V / 32)], is where masks are computed; all answers share
    it.
    """

    def __init__(self, compiled: LLMatcher, bits: npt.NDArray[np.int32]) -> None:
        self._matcher = compiled
        self._bits = bits
        self._allowance = BEGINNING

    @property
    def ended(self) -> bool:
        """Whether nothing more may come: the grammar is through, or an end token was taken."""
        return bool(self._matcher.is_stopped())

    def mask(self, row: npt.NDArray[np.float32]) -> None:
        """Set the logits of all tokens that may not come next to -inf. Raises InvalidRequestError: too complex, or
        what it takes of the engine's time is more than its share.
        """
        began = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._allowance = min(self._allowance + EACH - (time.thread_time() - began), BEGINNING)
        self._check()
        added = _ADDED[self._bits.view(np.uint8)].reshape(-1)
        row[: added.size] += added

    def consume(self, token: int) -> None:
        """The answer goes on by a token that the mask allows. Raises InvalidRequestError: too complex."""
        self._matcher.consume_token(token)
        self._check()

    def valid(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may come next, one after the other."""
        return int(self._matcher.validate_tokens(list(tokens)))

    @contextmanager
    def supposing(self, tokens: Sequence[int]) -> Iterator[None]:
        """As if the answer had gone on by these tokens, as far as they may come, for now."""
        steps = self._matcher.try_consume_tokens(list(tokens))
        try:
            yield
        finally:
            self._matcher.rollback(steps)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequestError(f"the constraint cannot be followed further: {why(self._matcher)}")
        if self._allowance < 0:
            raise InvalidRequestError(
                f"the constraint cannot be followed further: it takes more than {EACH * 1000:g} ms for each token"
            )
