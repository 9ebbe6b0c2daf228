"""Which sizes to warm for the requests that come: shape buckets from observed sizes. Pure.

A bucket costs a run while warming, and memory; the largest is the ceiling of what is admitted. Few that follow the
traffic are better than many powers of two: the choice of `count` sizes that wastes the fewest cells is found exactly,
by dynamic programming over the sizes that occur.
"""

from collections import Counter
from collections.abc import Sequence

ENOUGH = 1.15  # padded cells over real ones: less is not worth another bucket


def choose(observed: Sequence[int], *, at_most: int) -> tuple[int, ...]:
    """Ascending sizes that hold every observed one, as few as waste at most `ENOUGH`; never more than `at_most`."""
    counts = sorted(Counter(_rounded(size) for size in observed).items())
    best: tuple[int, ...] = (counts[-1][0],)
    for count in range(1, min(at_most, len(counts)) + 1):
        best = _best(counts, count)
        if waste(observed, best) <= ENOUGH:
            break
    return best


def waste(observed: Sequence[int], sizes: Sequence[int]) -> float:
    """Cells when each observation is padded up to the next size, over cells without padding."""
    padded = sum(next((size for size in sizes if size >= real), real) for real in observed)
    return padded / sum(observed)


def _rounded(size: int) -> int:
    """Up to a multiple of a power of two, at most 8 and at most an eighth of the size: kernels like those, near sizes
    become one, and the rounding alone never wastes what `ENOUGH` allows.
    """
    step = max(1, min(8, 1 << max(0, size.bit_length() - 4)))
    return -(-size // step) * step


def _best(counts: Sequence[tuple[int, int]], count: int) -> tuple[int, ...]:
    """The `count` sizes with the fewest padded cells; the last is the largest that occurs."""
    infinite = float("inf")
    number = len(counts)
    # least[k][j]: the fewest padded cells of the first j sizes with k buckets; from_[k][j]: where the last one begins
    least = [[infinite] * (number + 1) for _ in range(count + 1)]
    from_ = [[0] * (number + 1) for _ in range(count + 1)]
    least[0][0] = 0.0
    for buckets in range(1, count + 1):
        for end in range(1, number + 1):
            requests = 0
            for start in range(end - 1, -1, -1):
                requests += counts[start][1]
                cost = least[buckets - 1][start] + requests * counts[end - 1][0]
                if cost < least[buckets][end]:
                    least[buckets][end], from_[buckets][end] = cost, start
    sizes, end = [], number
    for buckets in range(count, 0, -1):
        sizes.append(counts[end - 1][0])
        end = from_[buckets][end]
    return tuple(reversed(sizes))
