"""All objects of a ModelDeployment, in the order in which they are applied."""

from collections.abc import Mapping
from dataclasses import replace

from headway_api import names

from headway_operator.desired import model, revision
from headway_operator.desired.record import controller_revision
from headway_operator.observed import Object, Observed, Plan, Record, Role, Target


def desired_objects(observed: Observed, plan: Plan) -> list[Object]:
    """What should be there: records before what is rendered from them, what pods mount before pods, the Service last.

    A plan with `hands_off` desires nothing *new*: then nothing may be applied or pruned.
    """
    if plan.hands_off:
        return []
    resource = observed.resource
    assert resource.spec is not None
    records = recorded(observed, plan)
    live = [(target, records[target.revision]) for target in plan.targets if target.revision in records]
    roles = noted_roles(observed, records, plan)
    return [
        *(controller_revision(resource, record, roles.get(name)) for name, record in sorted(records.items())),
        *(revision.config_map(resource, record) for _, record in live),
        model.knobs_config_map(resource, resource.spec),
        model.service_account(resource),
        model.network_policy(resource),
        *(revision.headless_service(resource, record) for _, record in live),
        *(revision.disruption_budget(resource, record) for _, record in live),
        *(revision.deployment(resource, record, target.replicas) for target, record in live),
        model.service(resource),
    ]


def prunable(obj: Object, plan: Plan) -> bool:
    """Whether an object of ours that is not desired may be deleted.

    Not while its revision should have pods: one whose record was deleted by hand cannot be rendered, and goes on until
    another has taken over. And not before every router confirmed that it sends nothing there, whatever is remembered.
    """
    name = names.revision_of(obj["metadata"]["name"])
    if plan.hands_off or plan.in_traffic is None:
        return False
    return name not in plan.in_traffic | {target.revision for target in plan.targets if target.replicas}


def recorded(observed: Observed, plan: Plan) -> dict[str, Record]:
    """The records as they should be: new ones and pins added, forgotten ones gone."""
    known = {**observed.records, **{record.name: record for record in plan.new_records}}
    return {
        name: replace(record, pin=record.pin or plan.pins.get(name))
        for name, record in known.items()
        if name not in plan.forget
    }


def noted_roles(observed: Observed, records: Mapping[str, Record], plan: Plan) -> dict[str, Role]:
    """Revision -> the role to note on its record.

    Stable is noted once it has served, with a share and a pod to answer it: a restore without status then knows that
    this is no first deployment. Previous stays noted while that revision comes back or serves as a canary.
    """
    weights, ready = observed.route.weights or {}, {pod.revision for pod in observed.pods if pod.ready}
    served = {name for name, record in observed.records.items() if record.role is Role.STABLE}
    served |= {name for name, weight in weights.items() if weight and name in ready}
    roles = {
        target.revision: target.role
        for target in plan.targets
        if not target.leaving and (target.role is not Role.STABLE or target.revision in served)
    }
    if Role.PREVIOUS not in roles.values():
        roles |= {t.revision: Role.PREVIOUS for t in plan.targets if _was_previous(t, records)}
    return roles


def _was_previous(target: Target, records: Mapping[str, Record]) -> bool:
    record = records.get(target.revision)
    returns = target.role in (Role.INCOMING, Role.CANARY) and not target.leaving
    return returns and record is not None and record.role is Role.PREVIOUS
