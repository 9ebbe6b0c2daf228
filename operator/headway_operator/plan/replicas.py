"""How many pods each revision has. Capacity comes before weight, and goes after the weight is verified to be gone."""

from headway_operator.observed import Role, Target
from headway_operator.plan.facts import Facts, pods_for
from headway_operator.plan.foresee import will_not_fit
from headway_operator.plan.identity import Wanted
from headway_operator.plan.roles import Roles
from headway_operator.plan.weights import Weights


def targets(facts: Facts, wanted: Wanted, roles: Roles, weights: Weights) -> tuple[Target, ...]:
    """Every revision that has pods or should have some, those with a role first."""
    held = ((Role.STABLE, roles.stable), (Role.INCOMING, roles.incoming), (Role.CANARY, roles.canary))
    assigned = [(role, name) for role, name in (*held, (Role.PREVIOUS, roles.previous)) if name]
    return tuple(
        Target(name, role, _pods(facts, wanted, name, role), weights.get(name, 0)) for role, name in assigned
    ) + tuple(
        Target(
            name, facts.role_before(name) or Role.INCOMING, _leaving(facts, name), weights.get(name, 0), leaving=True
        )
        for name in roles.leaving
    )


def capacity(facts: Facts, role: Role) -> int:
    """Ready pods that a revision needs to be what its role asks."""
    if role is Role.CANARY:
        return pods_for(facts.replicas, facts.canary_weight)
    if role is Role.PREVIOUS:
        return min(facts.rollback.warm_replicas, facts.replicas)
    return facts.replicas


def _pods(facts: Facts, wanted: Wanted, name: str, role: Role) -> int:
    record = wanted.records.get(name)
    if will_not_fit(facts.observed, wanted.records, name):
        return 0
    if record and record.pin is None and not facts.acked_of(name):
        # the first finds the digest; those of a lost record stay, but not what somebody scaled beyond the spec
        return max(1, min(facts.pods_now(name), facts.replicas))
    goal = capacity(facts, role)
    if role in (Role.STABLE, Role.INCOMING):
        return goal
    if not facts.verified:
        return max(goal, facts.pods_now(name))
    if facts.acked_of(name):
        return max(goal, min(facts.pods_now(name), pods_for(facts.replicas, facts.acked_of(name))))
    return goal


def _leaving(facts: Facts, name: str) -> int:
    return 0 if facts.out_of_traffic(name) else facts.pods_now(name)
