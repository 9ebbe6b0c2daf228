"""How the tokens that a step has left for prompts are shared among them. Pure.

The first in line gets half, or more if the others do not need theirs: it goes on whatever comes, and needs twice the
time at most. The other half goes to whoever has the least left to run: a short prompt behind a long one is through
after a step or two, where one prompt at a time would let it wait for all of the long one. As everyone becomes the first
at some time, nobody starves.
"""

from collections.abc import Sequence


def shares(budget: int, wanted: Sequence[int]) -> list[int]:
    """Tokens for each prompt, of which `wanted` are left to run, in the order of the line; at most `budget` in all."""
    if not wanted or budget <= 0:
        return [0] * len(wanted)
    given = [0] * len(wanted)
    given[0] = min(wanted[0], -(-budget // 2))
    left = budget - given[0]
    for number in sorted(range(1, len(wanted)), key=wanted.__getitem__):
        given[number] = min(wanted[number], left)
        left -= given[number]
    given[0] += min(wanted[0] - given[0], left)
    return given
