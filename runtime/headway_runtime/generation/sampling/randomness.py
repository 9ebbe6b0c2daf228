"""Random numbers that depend on the seed, the answer, the token's position and the candidate, and on nothing else.

There is no generator with a state: the number of a place is a hash of the place (SplitMix64; Steele, Lea and Flood,
OOPSLA 2014). So a draw is the same whatever else was drawn before it: other rows, a run that was repeated, drafts that
were refused.
"""

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_UNIT = 2.0**-53


def key(seed: int, index: int, position: int) -> int:
    """64 bits for one token of one answer."""
    mixed = 0
    for word in (seed, index, position):
        mixed = _mix((mixed ^ word & _WORD) + _GOLDEN & _WORD)
    return mixed


def exponentials(key: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One of the standard exponential distribution for each id, the same for the same key and id."""
    word = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(key)
    word = (word ^ word >> np.uint64(30)) * np.uint64(_FIRST)
    word = (word ^ word >> np.uint64(27)) * np.uint64(_SECOND)
    word ^= word >> np.uint64(31)
    uniforms = ((word >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT
    exponential: npt.NDArray[np.float64] = -np.log(uniforms)
    return exponential


def _mix(word: int) -> int:
    word = (word ^ word >> 30) * _FIRST & _WORD
    word = (word ^ word >> 27) * _SECOND & _WORD
    return word ^ word >> 31
