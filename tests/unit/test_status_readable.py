"""A status that was edited by hand, by another controller or by another release ends no pass and moves no traffic."""

import copy
from typing import Any

import hypothesis.strategies as st
import pytest
from headway_operator.observed import Role
from headway_operator.status import readable
from hypothesis import given, settings

from tests.unit.plan_world import World, serving

GARBAGE = st.one_of(
    st.none(), st.text(max_size=5), st.integers(-300, 300), st.just([]), st.just({}), st.just([{"name": "x"}, 7])
)


def busy() -> World:
    """A canary, a previous version, and a rollout that was given up: something in every part of the status."""
    w = serving(replicas=2, canary={"artifact": {"uri": "s3://m/c"}, "weight": 50})
    w.edit(artifact={"uri": "s3://m/b"})
    w.settle()
    w.edit(artifact={"uri": "s3://m/broken"})
    w.settle()
    w.now += 1000
    w.settle()
    assert w.status["rollout"]["abort"]
    return w


BUSY = busy()


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in paths(each, (*path, key)))]


def spoiled(status: Any, path: tuple[Any, ...], garbage: Any) -> Any:
    status = copy.deepcopy(status)
    inner = status
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = garbage
    return status


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(paths(BUSY.status)[1:]), GARBAGE)
def test_garbage_anywhere_in_the_status_ends_no_pass(path: tuple[Any, ...], garbage: Any) -> None:
    w = copy.deepcopy(BUSY)
    w.status = spoiled(w.status, path, garbage)
    w.restart_operator()
    w.pass_()
    w.settle()
    assert sum(w.weights().values()) == 100


def test_a_status_that_this_release_wrote_is_read_whole() -> None:
    assert readable(BUSY.status) == BUSY.status


def test_a_version_that_a_hand_added_to_the_status_takes_no_role() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.edit(artifact={"uri": "s3://m/b"})
    w.status["revisions"].append({"name": "zzz", "role": "Stable", "weight": 0})
    w.pass_()
    assert w.role(Role.STABLE) == stable
    assert w.published == {stable: 100}


def test_a_condition_of_another_controller_and_a_field_of_another_release_are_passed_over() -> None:
    theirs = {
        "type": "Audited",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    newer = {**BUSY.status["revisions"][0], "shards": 3}
    status = {
        **BUSY.status,
        "revisions": [newer],
        "conditions": [theirs, *BUSY.status["conditions"]],
        "later": {"a": 1},
    }
    assert readable(status) == {**BUSY.status, "revisions": BUSY.status["revisions"][:1]}


@pytest.mark.parametrize("time", ["yesterday", "", 5, None])
def test_an_entry_without_a_time_is_said_anew(time: Any) -> None:
    w = serving()
    for condition in w.status["conditions"]:
        condition["lastTransitionTime"] = time
    w.pass_()
    assert w.said("Ready") == ("True", "Serving")
