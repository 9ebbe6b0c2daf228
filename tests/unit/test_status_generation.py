"""`status.generation`: room for sequences, as the pod with the least has it, and quiet while it is so."""

from dataclasses import replace
from typing import Any

from headway_api.podconfig import GenerationReport
from headway_operator.observed import Object
from headway_operator.plan import plan
from headway_operator.status import status

from tests.unit.plan_world import World, serving


def report(**changes: Any) -> GenerationReport:
    values = {"block_tokens": 16, "blocks": 100, "blocks_free": 7, "bytes_per_token": 1024, "cache_bytes": 1600 * 1024}
    return GenerationReport(**{**values, "max_length": 800, "sequences": 2, "kernels": "native-avx2", **changes})


def told(w: World, *said: GenerationReport | None, before: Object | None = None) -> Object | None:
    observed = w.observed()
    pods = tuple(
        replace(pod, report=pod.report.model_copy(update={"generation": each}) if pod.report else None)
        for pod, each in zip(observed.pods, said, strict=True)
    )
    resource = replace(
        observed.resource,
        status={**observed.resource.status, "generation": before} if before else observed.resource.status,
    )
    observed = replace(observed, pods=pods, resource=resource)
    return status(observed, plan(observed, w.now), w.now).get("generation")


def test_the_pod_with_the_least_room_speaks() -> None:
    found = told(serving(replicas=2), report(), report(blocks=50, sequences=1))
    assert found is not None
    assert (found["blocks"], found["sequences"], found["kernels"]) == (50, 1, "native-avx2")
    assert "blocksFree" not in found
    assert "lengthP99" not in found


def test_a_model_that_generates_nothing_has_no_such_status() -> None:
    assert told(serving(), None) is None


def test_a_usual_length_that_moves_a_little_is_not_written_again() -> None:
    w = serving()
    first = told(w, report(length_p99=400, sequences_p99=4))
    assert first is not None
    assert told(w, report(length_p99=420, sequences_p99=3), before=first) == first
    moved = told(w, report(length_p99=600, sequences_p99=2), before=first)
    assert moved is not None
    assert (moved["lengthP99"], moved["sequencesP99"]) == (600, 2)
