"""What the user reads about padding, and about the knobs he might set: as the pods found, and quiet while it is so."""

from dataclasses import replace
from typing import Any

import pytest
from headway_api.podconfig import Advice, PaddingReport, Recommendation, Report, Verdict
from headway_operator.observed import Object
from headway_operator.plan import plan
from headway_operator.status import status
from pydantic import ValidationError

from tests.unit.plan_world import World, serving, world

MORE = Recommendation(reason=Advice.UNDER_BATCHED, message="runs hold 1.2 rows", max_batch=16, max_wait="4ms")
FINE = Recommendation(reason=Advice.BALANCED, message="all is well")


def told(w: World, *said: dict[str, Any]) -> Object:
    """The status when the pods in turn report this; one that is empty reports nothing."""
    observed = w.observed()
    pods = tuple(
        replace(pod, report=pod.report.model_copy(update=each) if each and pod.report else None)
        for pod, each in zip(observed.pods, said, strict=True)
    )
    observed = replace(observed, pods=pods)
    return status(observed, plan(observed, w.now), w.now)


def padding(of: Object) -> tuple[str, str, str]:
    found = next(each for each in of["conditions"] if each["type"] == "PaddingProven")
    return found["status"], found["reason"], found["message"]


def trial(verdict: Verdict, message: str = "", dimension: str = "sequence") -> dict[str, Any]:
    return {"padding": [PaddingReport(dimension=dimension, verdict=verdict, message=message)]}


@pytest.mark.parametrize(
    ("verdict", "expected", "reason"),
    [
        (Verdict.PROVEN, "True", "Proven"),
        (Verdict.TRUSTED, "Unknown", "Trusted"),
        (Verdict.NEVER, "True", "NothingToPad"),
        (Verdict.UNPROVEN, "False", "NotPadded"),
        (Verdict.FAILED, "False", "PaddingChangesAnswers"),
    ],
)
def test_a_trial_of_padding_is_said_with_its_dimension(verdict: Verdict, expected: str, reason: str) -> None:
    found = padding(told(serving(), trial(verdict, "no pad value of input ids is known")))
    assert found[:2] == (expected, reason)
    assert "sequence" in found[2]
    assert ("no pad value" in found[2]) == (expected == "False")


def test_the_worst_of_all_pods_is_said() -> None:
    w = serving(replicas=2)
    assert padding(told(w, trial(Verdict.PROVEN), trial(Verdict.FAILED, "output 0")))[1] == "PaddingChangesAnswers"
    assert padding(told(w, trial(Verdict.UNPROVEN), trial(Verdict.TRUSTED)))[1] == "NotPadded"


def test_a_pods_long_words_are_cut() -> None:
    many = {
        "padding": [PaddingReport(dimension=f"d{n}", verdict=Verdict.FAILED, message="x" * 5000) for n in range(99)]
    }
    assert len(padding(told(serving(), many))[2]) < 2048


def test_before_a_pod_has_tried_it_nothing_is_claimed_and_what_was_known_stays() -> None:
    w = world()
    w.pass_()
    assert w.said("PaddingProven") == ("Unknown", "Preparing")
    w = serving()
    before = w.condition("PaddingProven")
    assert next(c for c in told(w, {})["conditions"] if c["type"] == "PaddingProven") == before


def test_without_a_recommendation_there_is_none() -> None:
    assert "recommendation" not in serving().status


def test_what_most_pods_recommend_is_said() -> None:
    w = serving(replicas=3)
    found = told(w, {"recommendation": MORE}, {"recommendation": FINE}, {"recommendation": MORE})
    assert found["recommendation"] == {
        "reason": "UnderBatched",
        "maxBatch": 16,
        "maxWait": "4ms",
        "message": "runs hold 1.2 rows",
    }


def test_the_same_advice_with_other_figures_writes_nothing() -> None:
    w = serving()
    w.status = told(w, {"recommendation": MORE})
    again = MORE.model_copy(update={"message": "runs hold 1.3 rows"})
    assert told(w, {"recommendation": again}) == w.status
    assert told(w, {"recommendation": FINE})["recommendation"]["reason"] == "Balanced"


def test_advice_stays_while_pods_are_not_read_yet_or_have_seen_too_little_to_give_another() -> None:
    w = serving()
    w.status = told(w, {"recommendation": MORE})
    assert told(w, {})["recommendation"] == w.status["recommendation"]
    assert told(w, {"requests": 1})["recommendation"] == w.status["recommendation"]


@pytest.mark.parametrize("wait", ["soon", "x" * 30, ""])
def test_advice_that_no_field_would_take_is_not_read(wait: str) -> None:
    said = {"reason": "Balanced", "message": "", "maxWait": wait}
    with pytest.raises(ValidationError):
        Report.model_validate({"model": "m", "revision": "r", "phase": "Ready", "recommendation": said})
