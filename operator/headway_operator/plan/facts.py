"""What a pass knows, read once from `Observed`: ready pods, acknowledged weights, the spec with its defaults."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway_api.types import Keep, Rollback, Rollout, Spec
from headway_api.units import parse_duration

from headway_operator.observed import Object, Observed, Record, Role
from headway_operator.plan.moments import parse_time


@dataclass(frozen=True, slots=True)
class Facts:
    """The view of `Observed` that every decision shares."""

    observed: Observed
    spec: Spec
    now: float
    records: Mapping[str, Record]  # with the pins that pods found
    told: Mapping[str, str]  # revision -> digest that its first pod found
    found: Mapping[str, str]  # the same where it is not recorded yet
    before: Mapping[str, Object]  # revision -> its entry in the last written status
    ready: Mapping[str, int]  # revision -> pods that are ready and stay
    acked: Mapping[str, int]  # revision -> per cent that the routers confirmed last; only above zero
    verified: bool  # `acked` is what every serving router runs now, and nothing newer is on its way

    @property
    def replicas(self) -> int:
        """Pods of a stable revision."""
        return self.spec.replicas or 1

    @property
    def deadline(self) -> float:
        """Seconds that a revision may take to reach its capacity."""
        return parse_duration((self.spec.rollout or Rollout()).progress_deadline, "spec.rollout.progressDeadline")

    @property
    def rollback(self) -> Rollback:
        """`spec.rollback` with its defaults."""
        return self.spec.rollback or Rollback()

    @property
    def keep_for(self) -> float:
        """Seconds that a previous revision is kept; 0 when none is kept."""
        if self.rollback.keep is not Keep.WARM:
            return 0.0
        return parse_duration(self.rollback.keep_for, "spec.rollback.keepFor")

    @property
    def canary_weight(self) -> int:
        """Per cent that the explicit canary should answer; 0 without one."""
        return self.spec.canary.weight if self.spec.canary else 0

    def ready_of(self, revision: str | None) -> int:
        """Ready pods of a revision; 0 for None."""
        return self.ready.get(revision or "", 0)

    def acked_of(self, revision: str | None) -> int:
        """Per cent that the routers confirmed for a revision; 0 for None."""
        return self.acked.get(revision or "", 0)

    def pods_now(self, revision: str) -> int:
        """Pods that the Deployment of a revision asks for; 0 without one."""
        workload = self.observed.workloads.get(revision)
        return workload.replicas if workload else 0

    def out_of_traffic(self, revision: str) -> bool:
        """Whether every router confirmed that a revision answers nothing: only then may it lose pods."""
        return self.verified and self.acked_of(revision) == 0

    def role_before(self, revision: str) -> Role | None:
        """The role in the last written status."""
        return Role(self.before[revision]["role"]) if revision in self.before else None

    def since(self, revision: str, role: Role, key: str = "since") -> float:
        """When a revision took its role (or `key` began), as long as it is still the same role; else now.

        Never later than now: a time that a clock ahead of ours wrote would stop every deadline until then.
        """
        entry = self.before.get(revision, {})
        return min(parse_time(entry[key]), self.now) if entry.get("role") == role and entry.get(key) else self.now

    def progressing_since(self, revision: str, role: Role) -> float:
        """When a revision that lacks pods last came forward: a pod more is ready, or its digest was found.

        So a rollout that went on while the operator was away is not given up for the time that it was away.
        """
        forward = self.ready_of(revision) > self.before.get(revision, {}).get("ready", 0) or revision in self.found
        return self.now if forward else self.since(revision, role, "progressingSince")


def pods_for(replicas: int, weight: int) -> int:
    """Pods that can carry `weight` per cent of what `replicas` pods carry; at least one."""
    return max(1, -(-replicas * weight // 100))


def gather(observed: Observed, spec: Spec, now: float) -> Facts:
    """The facts of a pass."""
    before = {entry["name"]: entry for entry in observed.resource.status.get("revisions", [])}
    confirmed = observed.route.weights
    weights = confirmed if confirmed is not None else {name: entry.get("weight", 0) for name, entry in before.items()}
    told = told_digests(observed)
    found = {name: told[name] for name, record in observed.records.items() if record.pin is None and name in told}
    return Facts(
        observed=observed,
        spec=spec,
        now=now,
        records={
            name: replace(record, pin=found[name]) if name in found else record
            for name, record in observed.records.items()
        },
        told=told,
        found=found,
        before=before,
        ready=Counter(pod.revision for pod in observed.pods if pod.ready and not pod.terminating),
        acked={name: weight for name, weight in weights.items() if weight > 0},
        verified=confirmed is not None and not observed.route.pending,
    )


def told_digests(observed: Observed) -> dict[str, str]:
    """Revision -> the digest that its first pod found."""
    told: dict[str, str] = {}
    for pod in sorted(observed.pods, key=lambda pod: pod.name):
        if pod.digest:
            told.setdefault(pod.revision, pod.digest)
    return told
