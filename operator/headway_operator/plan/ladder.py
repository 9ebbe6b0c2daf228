"""The decision ladder: the first rung that matches names the state of a rollout, for users and for logs.

Each rung is `State -> Step or None`. The weights and replicas follow from the roles and facts alone; the ladder says
which of the reasons holds them where they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headway_api import names
from headway_api.conditions import ConditionType, Reason

from headway_operator.observed import Role, Step
from headway_operator.plan.facts import Facts
from headway_operator.plan.failures import explain
from headway_operator.plan.identity import Wanted
from headway_operator.plan.replicas import capacity
from headway_operator.plan.roles import Roles
from headway_operator.plan.weights import Weights, signature_changed


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a rung may look at."""

    facts: Facts
    wanted: Wanted
    roles: Roles
    weights: Weights

    def count(self, revision: str, role: Role) -> str:
        """`1 of 3 pods are ready`, with the cause if one is known."""
        cause = explain(self.facts.observed, self.wanted.records, revision)
        ready = f"{self.facts.ready_of(revision)} of {capacity(self.facts, role)} pods are ready"
        return f"{ready}: {cause.message}" if cause else ready

    def has_capacity(self, revision: str, role: Role) -> bool:
        """Whether a revision has the ready pods that its role asks for."""
        return self.facts.ready_of(revision) >= capacity(self.facts, role)

    def reason(self, revision: str | None, otherwise: Reason) -> str:
        """The typed reason why a revision is not ready, if one is known."""
        cause = explain(self.facts.observed, self.wanted.records, revision) if revision else None
        return cause.reason if cause else otherwise


def climb(state: State) -> Step:
    """The first rung that matches."""
    return next(step for rung in LADDER if (step := rung(state)))


def first_deployment(state: State) -> Step | None:
    """Nothing has served yet."""
    stable = state.roles.stable
    if state.facts.acked or state.weights or state.facts.observed.namespace_full:
        return None
    reason = state.reason(stable, Reason.ROLLING_OUT)
    waits = f"; the canary {state.wanted.canary} waits for it" if state.wanted.canary else ""
    return Step("first-deployment", reason, f"Revision {stable} starts: {state.count(stable, Role.STABLE)}{waits}")


def not_routed(state: State) -> Step | None:
    """The namespace has too many ModelDeployments for one router."""
    if state.weights or not state.facts.observed.namespace_full:
        return None
    return Step("namespace-full", Reason.NAMESPACE_FULL, "The router of this namespace takes no more ModelDeployments")


def aborted(state: State) -> Step | None:
    """The rollout was given up, until the spec changes."""
    abort = state.roles.abort
    return Step("aborted", abort.reason, abort.message) if abort else None


def rolling_back(state: State) -> Step | None:
    """The previous version, still live, takes over again."""
    name = state.roles.incoming
    if name is None or not state.roles.reverting:
        return None
    message = f"Revision {name}, still live, takes over again: {state.count(name, Role.INCOMING)}"
    return Step("rolling-back", Reason.ROLLING_BACK, message)


def incoming_not_ready(state: State) -> Step | None:
    """A new version has no pod that could answer."""
    name = state.roles.incoming
    if name is None or state.facts.ready_of(name):
        return None
    message = f"Revision {name} is brought up, {state.roles.stable} serves: {state.count(name, Role.INCOMING)}"
    return Step("incoming-not-ready", state.reason(name, Reason.ROLLING_OUT), message)


def incoming_without_capacity(state: State) -> Step | None:
    """A new version cannot carry its share yet."""
    name = state.roles.incoming
    if name is None or state.has_capacity(name, Role.INCOMING):
        return None
    message = f"Revision {name} gets its share when it can carry it: {state.count(name, Role.INCOMING)}"
    return Step("incoming-without-capacity", state.reason(name, Reason.ROLLING_OUT), message)


def incoming_unconfirmed(state: State) -> Step | None:
    """A new version is given its share, and the routers have not confirmed it."""
    name = state.roles.incoming
    if name is None:
        return None
    share = state.weights.get(name, 0)
    message = f"Revision {name} is ready; the routers have not confirmed its {share} % yet"
    return Step("incoming-unconfirmed", Reason.ROLLING_OUT, message)


def canary_refused(state: State) -> Step | None:
    """The canary's inputs or outputs differ from the stable's."""
    name = state.roles.canary
    if name is None or signature_changed(state.facts, state.roles.stable, name) is not True:
        return None
    return Step("canary-refused", Reason.SIGNATURE_CHANGED, signature_message(name, state.roles.stable))


def signature_message(canary: str, stable: str) -> str:
    """What to tell the user about a canary whose tensors differ."""
    return (
        f"The inputs or outputs of the canary {canary} differ from those of {stable}, so it gets no traffic; export it "
        f'with the same ones, or set the annotation {names.ANNOTATION_SIGNATURE}: "true"'
    )


def canary_not_ready(state: State) -> Step | None:
    """The canary cannot carry its weight yet."""
    name = state.roles.canary
    if name is None or (state.weights.get(name, 0) == state.facts.canary_weight and state.facts.ready_of(name)):
        return None
    message = f"The canary {name} waits for {state.facts.canary_weight} %: {state.count(name, Role.CANARY)}"
    return Step("canary-not-ready", state.reason(name, Reason.CANARY_NOT_READY), message)


def weights_unconfirmed(state: State) -> Step | None:
    """The routers have not confirmed the weights that are asked for."""
    if state.facts.verified and state.facts.acked == state.weights:
        return None
    if _was_up_to_date(state) and not state.facts.observed.route.known:
        return None  # the operator has just started and knows nothing else
    asked = ", ".join(f"{name} {weight} %" for name, weight in state.weights.items())
    return Step("weights-unconfirmed", Reason.ROLLING_OUT, f"The routers have not confirmed the weights yet: {asked}")


def stable_without_capacity(state: State) -> Step | None:
    """The stable version is not complete; once it was, at this generation, losing a pod makes no rollout."""
    stable = state.roles.stable
    if state.has_capacity(stable, Role.STABLE) or _was_up_to_date(state):
        return None
    reason = state.reason(stable, Reason.ROLLING_OUT)
    return Step("stable-without-capacity", reason, f"Revision {stable} serves: {state.count(stable, Role.STABLE)}")


def steady(state: State) -> Step | None:
    """What serves is what the spec asks for."""
    record = state.wanted.records.get(state.roles.stable)
    template = state.facts.spec.template
    newer = state.facts.observed.default_image
    if record and newer and record.image != newer and not (template and template.runtime_image):
        message = f"Revision {record.name} runs {record.image}; this release brings {newer}. "
        advice = f"Set the annotation {names.ANNOTATION_REFRESH} to a new value to take it"
        return Step("steady", Reason.RUNTIME_OUTDATED, message + advice, settled=True)
    canary = f", {state.roles.canary} is the canary" if state.roles.canary else ""
    return Step("steady", Reason.AS_SPECIFIED, f"Revision {state.roles.stable} is stable{canary}", settled=True)


def _was_up_to_date(state: State) -> bool:
    resource = state.facts.observed.resource
    return any(
        (c["type"], c["status"], c.get("observedGeneration")) == (ConditionType.UP_TO_DATE, "True", resource.generation)
        for c in resource.status.get("conditions", [])
    )


LADDER: tuple[Callable[[State], Step | None], ...] = (
    not_routed,
    first_deployment,
    aborted,
    rolling_back,
    incoming_not_ready,
    incoming_without_capacity,
    incoming_unconfirmed,
    canary_refused,
    canary_not_ready,
    weights_unconfirmed,
    stable_without_capacity,
    steady,
)
