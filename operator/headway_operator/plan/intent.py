"""The plan as the router of the namespace needs it."""

from headway_api.types import Batching, Queue, Spec

from headway_operator.observed import Observed, Plan, Role
from headway_operator.router.intent import Backend, Intent


def route_intent(observed: Observed, plan: Plan) -> Intent | None:
    """What the routers should do for this ModelDeployment; None: leave them as they are.

    Every revision with pods has a backend, weight or not: testers pin to it by header, and a rollback needs it at once.
    """
    resource = observed.resource
    if plan.hands_off or resource.spec is None:
        return None
    weights = {target.revision: target.weight for target in plan.targets if target.weight}
    if observed.namespace_full and not weights:
        return Intent(resource.name)
    limit = max_requests(resource.spec)
    records = {**observed.records, **{record.name: record for record in plan.new_records}}
    role = {target.role: target.revision for target in plan.targets if not target.leaving}
    return Intent(
        model=resource.name,
        stable=role.get(Role.STABLE),
        canary=role.get(Role.CANARY) or role.get(Role.INCOMING),
        weights=weights,
        backends=tuple(
            Backend(each.revision, limit, each.revision in records and records[each.revision].serves_grpc)
            for each in plan.targets
        ),
    )


def max_requests(spec: Spec) -> int:
    """Requests in flight to one revision that a router allows: twice what full queues and one run in every pod hold.

    Rounded up to a power of two and the same for each revision, because a changed limit makes Envoy build the cluster
    anew, and a knob or one more pod should not. Pods refuse what they cannot hold; this bounds what a router keeps for
    pods that are silent.
    """
    batching = spec.batching or Batching()
    rows = (batching.queue or Queue()).capacity + (batching.max_batch or 32)
    return 1 << (2 * rows * (spec.replicas or 1) - 1).bit_length()
