"""What the parts of the status look at."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api.podconfig import Phase

from headway_operator.desired.build import recorded
from headway_operator.observed import Object, Observed, Plan, Pod, Record, Role
from headway_operator.plan.facts import Facts, gather
from headway_operator.plan.failures import explain
from headway_operator.plan.refusal import Failure


@dataclass(frozen=True, slots=True)
class View:
    """`Observed`, `Plan`, and what follows from both."""

    observed: Observed
    plan: Plan
    facts: Facts
    records: Mapping[str, Record]
    before: Object  # the last written status

    @property
    def stable(self) -> str:
        """The revision that serves by role."""
        target = self.plan.target(Role.STABLE)
        assert target is not None, "every plan that acts has a stable revision"
        return target.revision

    @property
    def newest(self) -> tuple[str, ...]:
        """The revisions that the spec asks for, as far as the plan makes them."""
        incoming, canary = self.plan.target(Role.INCOMING), self.plan.target(Role.CANARY)
        asked = self.plan.abort.revision if self.plan.abort else incoming.revision if incoming else self.stable
        return (asked, canary.revision) if canary else (asked,)

    @property
    def wanted(self) -> Mapping[str, int]:
        """The weights that the plan asks for, above zero."""
        return {target.revision: target.weight for target in self.plan.targets if target.weight}

    @property
    def confirmed(self) -> bool:
        """Whether the routers run what the plan asks for."""
        return self.facts.verified and self.facts.acked == self.wanted

    def pods(self, revision: str) -> list[Pod]:
        """The pods of a revision that stay, by name."""
        pods = (pod for pod in self.observed.pods if pod.revision == revision and not pod.terminating)
        return sorted(pods, key=lambda pod: pod.name)

    def live(self) -> dict[str, list[Pod]]:
        """Revision -> its pods that serve or come up."""
        return {target.revision: [p for p in self.pods(target.revision) if _is_live(p)] for target in self.plan.targets}

    def failure(self, revision: str) -> Failure | None:
        """Why a revision is not ready, if it is known."""
        return explain(self.observed, self.records, revision)

    def condition_before(self, name: str) -> Object | None:
        """A condition as it was last written."""
        return next((condition for condition in self.before.get("conditions", []) if condition["type"] == name), None)

    def as_before(self, revision: str, field: str) -> str | None:
        """What `status.revisions` said of a revision when it was last written: it stands while no pod says anything."""
        before: str | None = self.facts.before.get(revision, {}).get(field)
        return before

    def late(self) -> list[str]:
        """Revisions that have lacked ready pods for longer than the progress deadline."""
        return [
            name for name, since in self.plan.rollout_since.items() if self.facts.now - since >= self.facts.deadline
        ]


def view(observed: Observed, plan: Plan, now: float) -> View:
    """The view of a plan that acts."""
    assert observed.resource.spec is not None
    facts = gather(observed, observed.resource.spec, now)
    return View(observed, plan, facts, recorded(observed, plan), observed.resource.status)


def _is_live(pod: Pod) -> bool:
    return pod.ready or (pod.report is not None and pod.report.phase is not Phase.FAILED)


def weights_text(weights: Mapping[str, int]) -> str:
    """`6f9c2a71 90 %, b04d77e0 10 %`."""
    return ", ".join(f"{name} {weight} %" for name, weight in sorted(weights.items())) or "none"
