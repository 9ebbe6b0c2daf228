"""What stands in the way of a pass, and for how long it is taken for granted."""

from typing import Any, cast

import pytest
from headway_operator.cluster import Cluster
from headway_operator.obstacles import LOOK_AGAIN, TRY_AGAIN, Obstacles
from headway_operator.store import Owner

OWNER = Owner("md", "prod", "sentiment")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def obstacles(clock: Clock) -> Obstacles:
    return Obstacles(cast("Cluster", None), clock)  # none of these asks the API server


def md(uid: str = "u", generation: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "generation": generation}}


@pytest.mark.parametrize(("by_spec", "seconds"), [(True, TRY_AGAIN), (False, LOOK_AGAIN)])
def test_a_refusal_stands_for_its_time_and_its_generation(
    obstacles: Obstacles, clock: Clock, by_spec: bool, seconds: float
) -> None:
    obstacles.met_refusal(OWNER, md(), "no", by_spec=by_spec)
    clock.now += seconds - 1
    found = obstacles.refusal(OWNER, md())
    assert found is not None
    assert (found.message, found.by_spec, found.again) == ("no", by_spec, 1.0)
    assert obstacles.refusal(OWNER, md(generation=2)) is None
    assert obstacles.refusal(OWNER, md(uid="another of this name")) is None
    clock.now += 1
    assert obstacles.refusal(OWNER, md()) is None


def test_an_object_of_a_predecessor_is_told_when_it_does_not_go(obstacles: Obstacles, clock: Clock) -> None:
    for _ in range(3):
        obstacles.met_predecessor(OWNER, md(), "Deployment/sentiment-1")
        clock.now += LOOK_AGAIN / 3 - 1
    assert obstacles.refusal(OWNER, md()) is None
    clock.now += 3
    obstacles.met_predecessor(OWNER, md(), "Deployment/sentiment-1")
    found = obstacles.refusal(OWNER, md())
    assert found is not None
    assert "Deployment/sentiment-1" in found.message
    obstacles.met_predecessor(OWNER, md(uid="third"), "Deployment/sentiment-1")
    assert obstacles.refusal(OWNER, md(uid="third")) is None
