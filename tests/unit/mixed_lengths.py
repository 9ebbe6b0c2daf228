"""A sentence encoder under load, simulated: mixed lengths, and a cost table as such an encoder has on a CPU."""

import random
from collections.abc import Sequence

from headway_api.podconfig import BucketCost
from headway_runtime.batching.costs import CostModel
from headway_runtime.batching.policy import Cost, Policy, Ticket

ROWS, LENGTHS = (1, 2, 4, 8, 16, 32), (16, 32, 64, 128)


def measured(rows: int, length: int) -> float:
    """Seconds: a constant, a part for each token, and caches that large runs outgrow (3 % more for each 200 tokens)."""
    tokens = rows * length
    return 2.5e-3 + 60e-6 * tokens * (1 + tokens / 6500)


def encoder_costs() -> list[BucketCost]:
    """What its warm-up would report."""
    return [BucketCost(sizes={"batch": r, "sequence": n}, seconds=measured(r, n)) for r in ROWS for n in LENGTHS]


def encoder_model() -> CostModel:
    """Its cost model."""
    model = CostModel.of(encoder_costs(), "batch", ("sequence",))
    assert model is not None
    return model


def mixed_lengths(count: int, seed: int) -> list[int]:
    """Tokens of sentences: 30 on average, few beyond 64, none beyond 128."""
    rng = random.Random(seed)
    return [min(128, max(4, round(rng.lognormvariate(3.23, 0.6)))) for _ in range(count)]


def perfectly_sorted(lengths: Sequence[int], cost: Cost, max_batch: int) -> float:
    """Seconds of the best offline schedule: all is known, sorted, and cut into runs as well as can be."""
    best = [0.0]
    ordered = sorted(lengths)
    for end in range(1, len(ordered) + 1):
        best.append(
            min(best[end - rows] + cost(rows, (ordered[end - 1],)) for rows in range(1, min(max_batch, end) + 1))
        )
    return best[-1]


def saturated(policy: Policy, lengths: Sequence[int], cost: Cost, *, kept: int) -> tuple[float, list[float]]:
    """Seconds until all are done, and the wait of each (seconds), when `kept` requests wait at any time."""
    now, waits, sent = 0.0, [], 0
    while sent < len(lengths) or len(policy):
        while sent < len(lengths) and len(policy) < kept:
            policy.admit(Ticket(sent, "g", 1, 1, now, float("inf"), (lengths[sent],)))
            sent += 1
        plan = policy.plan(now)
        policy.start(plan)
        waits += [now - ticket.arrived for ticket in plan.tickets]
        now += cost(len(plan.tickets), (max(ticket.sizes[0] for ticket in plan.tickets),))
    return now, waits
