"""How often each token was made, for the penalties: kept as the answer grows, never counted anew."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

_ROOM = 64


class Counts:
    """Tokens that occurred, each once, with how often they are part of the answer (0: of the prompt alone)."""

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        seen = dict.fromkeys(prompt)
        self._place = {token: place for place, token in enumerate(seen)}
        self._tokens = np.fromiter(seen, np.int64, len(seen))
        self._times = np.zeros(len(seen), np.int64)

    def add(self, token: int) -> None:
        """One more of the answer."""
        place = self._place.setdefault(token, len(self._place))
        if place >= self._tokens.size:
            self._tokens = np.concatenate([self._tokens, np.zeros(max(_ROOM, place), np.int64)])
            self._times = np.concatenate([self._times, np.zeros(max(_ROOM, place), np.int64)])
        self._tokens[place] = token
        self._times[place] += 1

    @contextmanager
    def supposing(self, tokens: Iterable[int]) -> Iterator[None]:
        """As if these had been made as well, for now."""
        known, times = len(self._place), self.times.copy()
        for token in tokens:
            self.add(token)
        try:
            yield
        finally:
            while len(self._place) > known:
                self._times[self._place.popitem()[1]] = 0
            self._times[:known] = times

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Each once, [n]."""
        return self._tokens[: len(self._place)]

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """Of each of `tokens`."""
        return self._times[: len(self._place)]
