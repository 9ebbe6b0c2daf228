"""One decision: from what is, and the time, to what should be."""

from collections.abc import Callable

from headway_api.conditions import Reason

from headway_operator.observed import Observed, Plan, Role, Step, Target
from headway_operator.plan.facts import Facts, gather
from headway_operator.plan.identity import Wanted, identify, is_refuted
from headway_operator.plan.ladder import State, climb
from headway_operator.plan.replicas import capacity, targets
from headway_operator.plan.roles import Roles, assign, remembered
from headway_operator.plan.weights import wanted_weights

UNSETTLED_SECONDS = 5.0  # a pass that waits for others is woken by their events; this is for an event that was lost


def plan(observed: Observed, now: float) -> Plan:
    """What should be. `now` is in seconds since the epoch. Total: every `Observed` has a plan."""
    if step := next((step for rung in _HANDS_OFF if (step := rung(observed))), None):
        return Plan(step, hands_off=True)
    assert observed.resource.spec is not None
    facts = gather(observed, observed.resource.spec, now)
    old = remembered(facts)
    wanted = identify(facts, old.get(Role.STABLE), old.get(Role.CANARY))
    roles = assign(facts, wanted)
    weights = wanted_weights(facts, roles)
    step = climb(State(facts, wanted, roles, weights))
    chosen = targets(facts, wanted, roles, weights)
    progressing = _progressing(facts, chosen)
    return Plan(
        step=step,
        targets=chosen,
        new_records=wanted.new,
        pins=facts.found,
        forget=_forget(facts, wanted, chosen),
        in_traffic=frozenset(facts.acked) if facts.verified else None,
        rollout_since=progressing,
        role_since={target.revision: facts.since(target.revision, target.role) for target in chosen},
        abort=roles.abort,
        look_again=_look_again(facts, roles, progressing, settled=step.settled),
    )


def _namespace_ends(observed: Observed) -> Step | None:
    if not observed.namespace_terminating:
        return None
    return Step("namespace-terminating", "NamespaceTerminating", "The namespace is being deleted; nothing is changed")


def _spec_unreadable(observed: Observed) -> Step | None:
    if observed.resource.spec is not None:
        return None
    return Step("invalid-spec", Reason.INVALID_SPEC, observed.resource.spec_error or "The spec cannot be read")


def _refused(observed: Observed) -> Step | None:
    return Step("refused", Reason.REFUSED, observed.refused) if observed.refused else None


_HANDS_OFF: tuple[Callable[[Observed], Step | None], ...] = (_namespace_ends, _spec_unreadable, _refused)


def _progressing(facts: Facts, chosen: tuple[Target, ...]) -> dict[str, float]:
    """Revision -> since when it lacks the ready pods that its role asks for."""
    return {
        target.revision: facts.progressing_since(target.revision, target.role)
        for target in chosen
        if not target.leaving
        and target.role is not Role.PREVIOUS
        and facts.ready_of(target.revision) < capacity(facts, target.role)
    }


def _forget(facts: Facts, wanted: Wanted, chosen: tuple[Target, ...]) -> tuple[str, ...]:
    """Records beyond `rollback.history`, oldest first; never of a revision that lives or that the spec asks for.

    A refuted one that is not asked for goes at once: without its pods nothing would tell that its pin is wrong.
    """
    asked = {wanted.stable, wanted.canary}
    needed = {target.revision for target in chosen} | asked | facts.observed.workloads.keys()
    idle = sorted((r for name, r in facts.records.items() if name not in needed), key=lambda record: record.number)
    refuted = [r.name for name, r in sorted(facts.records.items()) if name not in asked and is_refuted(facts, r)]
    surplus = [record.name for record in idle[: max(0, len(idle) - facts.rollback.history)]]
    return tuple(dict.fromkeys([*surplus, *refuted]))


def _look_again(facts: Facts, roles: Roles, progressing: dict[str, float], *, settled: bool) -> float | None:
    """Seconds until time alone changes the plan; None when only events can."""
    ends = [since + facts.deadline for since in progressing.values()]
    if roles.previous:
        ends.append(facts.since(roles.previous, Role.PREVIOUS) + facts.keep_for)
    waits = [end - facts.now for end in ends if end > facts.now]
    if not settled or roles.leaving:
        waits.append(UNSETTLED_SECONDS)
    return min(waits, default=None)
