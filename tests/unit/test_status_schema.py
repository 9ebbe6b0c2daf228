"""What the operator writes into `status` is in the CRD: the API server drops a field that is not, without a word."""

import pytest
from headway_api.podconfig import BucketReport, Clamp, KnobsReport, Phase, Report, Termination
from headway_api.statustypes import Status
from headway_api.types import Spec
from headway_operator.observed import Abort, Observed, Plan, Pod, Resource, Role, RouteState, Step, Target
from headway_operator.plan import plan
from headway_operator.status import status
from pydantic import ValidationError

NOW = 1_800_000_000.0
IMAGE = "headway/runtime:0.1.0"


def _resource(before: dict[str, object]) -> Resource:
    spec = Spec.model_validate({"artifact": {"uri": "s3://models/a.pt2"}, "device": {"kind": "cpu"}})
    return Resource("sentiment", "prod", "uid", 3, {}, spec, None, before)


def _observed(*pods: Pod, before: dict[str, object] | None = None, decided: Plan | None = None) -> Observed:
    records = {record.name: record for record in decided.new_records} if decided else {}
    weights = dict.fromkeys(records, 100)
    return Observed(
        resource=_resource(before or {}),
        records=records,
        workloads={},
        pods=pods,
        route=RouteState(weights=weights, clusters=frozenset(records), routers=1, acknowledged_at=NOW),
        default_image=IMAGE,
    )


def _report(revision: str) -> Report:
    clamp = Clamp(field="spec.batching.maxBatch", asked="64", effective="32", message="the program's largest is 32")
    return Report(
        model="sentiment",
        revision=revision,
        phase=Phase.READY,
        buckets=BucketReport(total=4, warm=4),
        knobs=KnobsReport(hash="0" * 12, effective={"maxBatch": 32, "queue": {"capacity": 512}}, clamped=[clamp]),
    )


def test_the_status_of_a_first_pass_of_a_served_and_of_a_failing_model_is_in_the_schema() -> None:
    first = _observed()
    decided = plan(first, NOW)
    Status.model_validate(status(first, decided, NOW))
    (record,) = decided.new_records

    serves = Pod("a", "u", record.name, "10.0.0.1", ready=True, terminating=False, report=_report(record.name))
    served = _observed(serves, decided=decided)
    told = status(served, plan(served, NOW), NOW)
    assert Status.model_validate(told).revisions

    refusal = Termination(
        reason="NotFound", message="no such object", condition="ArtifactVerified", field="spec.artifact.uri"
    )
    fails = Pod("b", "v", record.name, None, ready=False, terminating=False, container="prepare", termination=refusal)
    failing = _observed(fails, before=told, decided=decided)
    assert Status.model_validate(status(failing, plan(failing, NOW), NOW)).last_failure


def test_the_status_of_an_aborted_rollout_is_in_the_schema() -> None:
    decided = plan(_observed(), NOW)
    (record,) = decided.new_records
    aborted = Plan(
        step=Step("aborted", "RolloutAborted", "gave up"),
        targets=(
            Target(record.name, Role.STABLE, 1, 100),
            Target("b04d77e0", Role.INCOMING, 0, 0, leaving=True),
        ),
        role_since={record.name: NOW, "b04d77e0": NOW},
        rollout_since={"b04d77e0": NOW},
        abort=Abort("b04d77e0", 3, "ProgressDeadlineExceeded", "not ready in time", NOW),
    )
    told = Status.model_validate(status(_observed(decided=decided), aborted, NOW))
    assert told.rollout
    assert told.rollout.abort


def test_a_field_that_the_schema_lacks_is_seen() -> None:
    with pytest.raises(ValidationError, match="forgotten"):
        Status.model_validate({"forgotten": 1})
