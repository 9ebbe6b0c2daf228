"""Who is stable, who comes in, who is the canary, who is kept for a rollback, who leaves, and what was given up.

Roles are remembered in `status`, and in the records for a restore without status; where both are lost, what carries the
traffic is stable. They change only on facts: a revision becomes stable when the routers confirmed that it has all of
its share and the old one has none of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api.types import Keep
from headway_api.units import format_duration

from headway_operator.observed import Abort, Role
from headway_operator.plan.facts import Facts
from headway_operator.plan.failures import explain
from headway_operator.plan.identity import Wanted
from headway_operator.plan.moments import parse_time


@dataclass(frozen=True, slots=True)
class Roles:
    """The part that each revision plays in this pass; at most one role for each."""

    wanted: str  # what the spec asks to be stable
    stable: str
    incoming: str | None = None  # `wanted` on its way to become stable
    canary: str | None = None
    previous: str | None = None
    leaving: tuple[str, ...] = ()
    reverting: bool = False  # the incoming one is the previous one, still live
    stable_share: int = 0  # per cent that the stable keeps although another comes in, because it is the new canary
    abort: Abort | None = None

    def carriers(self) -> tuple[str, ...]:
        """The revisions that may be given weight."""
        return tuple(name for name in (self.stable, self.incoming, self.canary) if name)


def remembered(facts: Facts) -> Mapping[Role, str]:
    """Role -> revision, from the last written status; without one, from the records."""
    exists = facts.records.keys() | facts.observed.workloads.keys()
    present = [entry for name, entry in facts.before.items() if name in exists and not entry.get("leaving")]
    roles = {Role(entry["role"]): str(entry["name"]) for entry in present}
    told = Role.STABLE in roles
    for record in sorted(facts.records.values(), key=lambda record: record.number):
        # A previous one that is on its way back, or serves as a canary, is noted on its record only.
        if record.role and (not told or record.role is Role.PREVIOUS):
            roles.setdefault(record.role, record.name)
    return roles


def assign(facts: Facts, wanted: Wanted) -> Roles:
    """The roles of this pass."""
    old = remembered(facts)
    stable, previous = old.get(Role.STABLE) or _carries_most(facts, wanted), old.get(Role.PREVIOUS)
    kept = facts.rollback.keep is Keep.WARM
    if stable is None or (stable != wanted.stable and not has_served(facts, stable)):
        stable = wanted.stable  # the first deployment: there is nothing to be careful about
    elif stable != wanted.stable and _takes_over(facts, wanted, stable):
        stable, previous = wanted.stable, stable if kept and _has_answered(facts, stable) else None
    abort = _standing_abort(facts, wanted.stable, stable) or _new_abort(facts, wanted.stable, stable)
    incoming = wanted.stable if wanted.stable != stable and abort is None else None
    canary = wanted.canary if _admits_canary(facts, wanted.canary, stable) else None
    reverting = incoming is not None and incoming == previous and incoming in facts.observed.workloads
    if previous in (stable, incoming, canary) or (previous and not _is_worth_keeping(facts, previous)):
        previous = None
    holders = {stable, incoming, canary, previous}
    return Roles(
        wanted=wanted.stable,
        stable=stable,
        incoming=incoming,
        canary=canary if canary != stable else None,
        previous=previous,
        leaving=tuple(name for name in _alive(facts) if name not in holders),
        reverting=reverting,
        stable_share=facts.canary_weight if incoming and canary == stable else 0,
        abort=abort,
    )


def _carries_most(facts: Facts, wanted: Wanted) -> str | None:
    """The live revision with the largest share or, where none is known, the most ready pods; None: nothing serves.

    Status and records may all be lost, and the spec be another by then: what answers is still there to be seen. A
    canary with no more than its weight, and a previous version without any, are meant only if there is no other.
    """
    ranks = {
        name: (not _is_spare(facts, wanted, name), share, facts.ready_of(name), name == wanted.stable, name)
        for name in facts.observed.workloads
        if (share := facts.acked_of(name)) or facts.ready_of(name)
    }
    return max(ranks, key=ranks.__getitem__, default=None)


def _is_spare(facts: Facts, wanted: Wanted, name: str) -> bool:
    record, share = facts.records.get(name), facts.acked_of(name)
    was_previous = record is not None and record.role is Role.PREVIOUS
    return (name == wanted.canary and share <= facts.canary_weight) or (was_previous and not share)


def has_served(facts: Facts, stable: str) -> bool:
    """Whether anybody was ever answered: the record says so where routers and status have no memory of it."""
    return bool(facts.acked) or _has_answered(facts, stable)


def _has_answered(facts: Facts, revision: str) -> bool:
    record = facts.records.get(revision)
    return facts.ready_of(revision) > 0 or (record is not None and record.role is not None)


def _takes_over(facts: Facts, wanted: Wanted, stable: str) -> bool:
    """Whether the wanted revision carries all of its share already, with all of its pods, confirmed."""
    keeps = facts.canary_weight if wanted.canary == stable else 0
    others = facts.acked_of(wanted.canary) if wanted.canary != stable else keeps
    return (
        facts.verified
        and facts.ready_of(wanted.stable) >= facts.replicas
        and facts.acked_of(stable) == keeps
        and facts.acked_of(wanted.stable) == 100 - others
    )


def _standing_abort(facts: Facts, wanted: str, stable: str) -> Abort | None:
    told = facts.observed.resource.status.get("rollout", {}).get("abort")
    if not told or wanted == stable:
        return None
    if (told["revision"], told["generation"]) != (wanted, facts.observed.resource.generation):
        return None
    return Abort(wanted, told["generation"], told["reason"], told["message"], parse_time(told["time"]))


def _new_abort(facts: Facts, wanted: str, stable: str) -> Abort | None:
    """Give up what is not ready in time; but only for a stable that is ready, or there is nothing to go back to."""
    late = facts.now - facts.progressing_since(wanted, Role.INCOMING) >= facts.deadline
    if wanted == stable or not late or facts.ready_of(wanted) >= facts.replicas or not facts.ready_of(stable):
        return None
    cause = explain(facts.observed, facts.records, wanted)
    message = (
        f"Revision {wanted} had {facts.ready_of(wanted)} of {facts.replicas} pods ready after "
        f"{format_duration(facts.deadline)}{f' ({cause.message})' if cause else ''}; "
        f"revision {stable} goes on serving. Change the spec to try again"
    )
    return Abort(wanted, facts.observed.resource.generation, "ProgressDeadlineExceeded", message, facts.now)


def _admits_canary(facts: Facts, canary: str | None, stable: str) -> bool:
    """At the first deployment a canary waits until the stable one is ready."""
    return canary is not None and (canary in facts.observed.workloads or has_served(facts, stable))


def _is_worth_keeping(facts: Facts, previous: str) -> bool:
    """Whether its time is not over, and it could take over: what has no record cannot be repaired."""
    young = facts.now - facts.since(previous, Role.PREVIOUS) < facts.keep_for
    return young and (previous in facts.records or facts.ready_of(previous) > 0)


def _alive(facts: Facts) -> list[str]:
    """Revisions with pods, with a Deployment that could make some, or with traffic that is not verified to be gone."""
    pods = {pod.revision for pod in facts.observed.pods}
    return sorted(
        name
        for name, workload in facts.observed.workloads.items()
        if workload.replicas or name in pods or not facts.out_of_traffic(name)
    )
