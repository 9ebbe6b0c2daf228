"""How many per cent of the requests each revision should answer.

Three rules, in this order: with nothing ready the confirmed weights stay (failover is the router's); a revision without
a ready pod gets nothing; and a revision gets more only while it has the pods to carry it, otherwise what was confirmed
holds.
"""

from headway_api import names
from headway_api.conditions import Reason

from headway_operator.observed import Role
from headway_operator.plan.facts import Facts, pods_for
from headway_operator.plan.roles import Roles, has_served

Weights = dict[str, int]


def wanted_weights(facts: Facts, roles: Roles) -> Weights:
    """Revision -> per cent, above zero, summing to 100; {} while no revision has ever been ready."""
    if facts.observed.namespace_full and not facts.acked:
        return {}
    if not any(facts.ready_of(name) for name in roles.carriers()):
        return _held(facts, roles)
    canary = _canary(facts, roles)
    incoming = _incoming(facts, roles, 100 - canary)
    weights = {roles.stable: 100 - canary - incoming}
    weights |= {name: weight for name, weight in ((roles.canary, canary), (roles.incoming, incoming)) if name}
    return {name: weight for name, weight in sorted(weights.items()) if weight}


def _held(facts: Facts, roles: Roles) -> Weights:
    """What was confirmed, but what has lost its role and its last ready pod leaves its weight to the stable."""
    if not facts.acked:
        return {roles.stable: 100} if has_served(facts, roles.stable) else {}
    held = {
        name: weight
        for name, weight in facts.acked.items()
        if name in roles.carriers() or (facts.ready_of(name) and name in facts.observed.workloads)
    }
    held[roles.stable] = held.get(roles.stable, 0) + 100 - sum(held.values())
    return {name: weight for name, weight in sorted(held.items()) if weight}


def _canary(facts: Facts, roles: Roles) -> int:
    name, wanted = roles.canary, facts.canary_weight
    if name is None or not facts.ready_of(name):
        return 0
    changed = signature_changed(facts, roles.stable, name)
    if changed:
        return 0
    held = min(wanted, facts.acked_of(name))
    if changed is None or facts.ready_of(name) < pods_for(facts.replicas, wanted):
        return held
    return wanted


def _incoming(facts: Facts, roles: Roles, side: int) -> int:
    name = roles.incoming
    if name is None or not (ready := facts.ready_of(name)):
        return 0
    full = max(0, side - roles.stable_share)
    if ready >= facts.replicas or (roles.reverting and not facts.ready_of(roles.stable)):
        return full
    if roles.reverting:
        return full * ready // facts.replicas
    return min(facts.acked_of(name), full)


def signature_changed(facts: Facts, stable: str, canary: str) -> bool | None:
    """Whether the canary takes or gives other tensors than the stable one; None until a pod of both has reported.

    A runtime that reports no signature cannot be compared, and is let through.
    After a restart of the operator nobody has said anything yet: a refusal that status remembers stands until then.
    """
    if facts.observed.resource.annotations.get(names.ANNOTATION_SIGNATURE) == "true":
        return False
    known = _signatures(facts, stable), _signatures(facts, canary)
    if all(known):
        return None not in known[0] | known[1] and known[0] != known[1]
    conditions = facts.observed.resource.status.get("conditions", [])
    refused = any(c["type"] == "Accepted" and c["reason"] == Reason.SIGNATURE_CHANGED for c in conditions)
    return True if refused and facts.role_before(canary) is Role.CANARY else None


def _signatures(facts: Facts, revision: str) -> frozenset[str | None]:
    pods = (pod for pod in facts.observed.pods if pod.revision == revision and pod.ready and pod.report)
    return frozenset(pod.report.signature for pod in pods if pod.report)
