"""Events: one for each transition that a user would want to know, none for the rest."""

from typing import Any

from headway_operator.status import Event, events

from tests.unit.plan_world import BROKEN, World, world

B = {"uri": "s3://m/b"}


def story(w: World) -> list[tuple[str, str]]:
    told = [(event.type, event.reason) for event in w.events]
    w.events.clear()
    return told


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def test_a_first_deployment_is_told_in_a_few_words() -> None:
    w = world()
    w.settle()
    assert story(w) == [
        ("Normal", "RollingOut"),
        ("Normal", "Verified"),
        ("Normal", "Accepted"),
        ("Normal", "Applied"),
        ("Normal", "Confined"),
        ("Normal", "NothingToPad"),
        ("Normal", "Serving"),
        ("Normal", "AsSpecified"),
        ("Normal", "WeightsConfirmed"),
    ]
    w.settle()
    assert story(w) == []


def test_a_promotion_and_its_weights_are_told() -> None:
    w = world()
    w.settle()
    story(w)
    w.edit(artifact=B)
    w.settle()
    told = story(w)
    assert ("Normal", "Promoted") in told
    assert ("Normal", "Warm") in told
    assert told.count(("Normal", "WeightsConfirmed")) == 1


def test_an_abort_is_a_warning() -> None:
    w = world()
    w.settle()
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    w.now += 901
    story(w)
    w.settle()
    assert story(w) == [("Warning", "ProgressDeadlineExceeded")]


def test_a_new_reason_of_the_same_status_is_told_and_a_new_message_is_not() -> None:
    before = condition("ArtifactVerified", "False", "NotFound", "a")
    assert events(before, condition("ArtifactVerified", "False", "NotFound", "b")) == []
    assert events(before, condition("ArtifactVerified", "False", "Forbidden", "b")) == [
        Event("Warning", "Forbidden", "b")
    ]


def test_the_ordinary_course_of_a_start_is_not_told_for_each_condition() -> None:
    assert events({}, condition("Ready", "False", "Starting")) == []
    assert events({}, condition("Routed", "False", "NoReadyRevision")) == []
    assert events({}, condition("Reconciling", "True", "RollingOut")) == []
    assert events(condition("Routed", "False", "WeightPending"), condition("Routed", "True", "Confirmed")) == []


def test_ceasing_to_be_ready_is_told() -> None:
    assert events(condition("Ready", "True", "Serving"), condition("Ready", "False", "Warming", "x")) == [
        Event("Normal", "Warming", "x")
    ]


def test_notes_are_bounded() -> None:
    (event,) = events({}, condition("Accepted", "False", "InvalidSpec", "x" * 5000))
    assert len(event.message) == 1024


def test_a_promotion_that_keeps_nothing_says_so() -> None:
    def stable(name: str) -> dict[str, Any]:
        return {"revisions": [{"name": name, "role": "Stable"}]}

    (event,) = events(stable("a"), stable("b"))
    assert event.message == "Revision b is stable; a was before"
