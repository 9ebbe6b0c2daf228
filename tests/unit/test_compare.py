"""When an object counts as being as desired."""

from typing import Any

import pytest
from headway_operator.compare import Settled, difference, owned_state

CASES: list[tuple[str, Any, Any, str | None]] = [
    ("the same", {"a": 1}, {"a": 1}, None),
    ("more than desired is others' business", {"a": 1}, {"a": 1, "b": 2}, None),
    ("another value is named by its path", {"spec": {"replicas": 1}}, {"spec": {"replicas": 3}}, "spec.replicas"),
    ("an absent field", {"data": {"x": "1"}}, {"data": {}}, "data.x"),
    ("an absent parent", {"spec": {"a": 1}}, {}, "spec"),
    ("a zero value may be left out", {"spec": {"a": {}, "b": [], "c": None, "d": False, "e": 0}}, {"spec": {}}, None),
    ("true is not one", {"a": True}, {"a": 1}, "a"),
    ("a list item that differs", {"a": [1, 2]}, {"a": [1, 3]}, "a"),
    ("a shorter list of scalars", {"a": [1, 2]}, {"a": [1, 2, 3]}, "a"),
    ("defaults inside of list items", {"c": [{"name": "x"}]}, {"c": [{"name": "x", "d": 1}]}, None),
    (
        "an injected container is others' business",
        {"c": [{"name": "x", "image": "1"}]},
        {"c": [{"name": "sidecar"}, {"name": "x", "image": "1"}]},
        None,
    ),
    (
        "a container that differs beside an injected one",
        {"c": [{"name": "x", "image": "1"}]},
        {"c": [{"name": "sidecar"}, {"name": "x", "image": "2"}]},
        "c[name=x].image",
    ),
    ("a container that is gone", {"c": [{"name": "x"}]}, {"c": [{"name": "y"}]}, "c[name=x]"),
    (
        "a label that somebody added to a Service's selector",
        {"spec": {"selector": {"a": "1"}}},
        {"spec": {"selector": {"a": "1", "b": "2"}}},
        "spec.selector",
    ),
    (
        "an expression that somebody added to a selector",
        {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
        {"spec": {"selector": {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b"}]}}},
        "spec.selector",
    ),
    (
        "a NetworkPolicy that somebody opened to other namespaces",
        {"spec": {"ingress": [{"from": [{"podSelector": {}}]}]}},
        {"spec": {"ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]}},
        "spec.ingress",
    ),
    (
        "the same items in another order",
        {"c": [{"name": "x"}, {"name": "y"}]},
        {"c": [{"name": "y"}, {"name": "x"}]},
        None,
    ),
]


@pytest.mark.parametrize(("desired", "live", "where"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_difference(desired: Any, live: Any, where: str | None) -> None:
    assert difference(desired, live) == where


def test_what_came_back_otherwise_is_settled_until_either_side_changes() -> None:
    settled = Settled()
    settled.came_back("u", {"cpu": "1000m"}, {"cpu": "1"})
    assert settled.is_known("u", {"cpu": "1000m"}, {"cpu": "1"})
    assert not settled.is_known("u", {"cpu": "1500m"}, {"cpu": "1"})
    assert not settled.is_known("u", {"cpu": "1000m"}, {"cpu": "2"})
    assert not settled.is_known("v", {"cpu": "1000m"}, {"cpu": "1"})
    settled.forget("u")
    assert not settled.is_known("u", {"cpu": "1000m"}, {"cpu": "1"})


def test_what_came_back_otherwise_once_is_an_edit_when_the_server_answers_as_asked() -> None:
    """As when a policy that changed it is gone."""
    settled, desired = Settled(), {"metadata": {"name": "a"}, "spec": {"x": 1}}
    changed = {"metadata": {"name": "a", "uid": "u"}, "spec": {"x": 2}}
    settled.answered(desired, changed)
    assert settled.difference(desired, changed) is None
    settled.answered(desired, {**changed, "spec": {"x": 1}})
    assert settled.difference(desired, changed) == "spec.x"


def test_an_edit_shows_in_the_owned_state_and_a_new_status_does_not() -> None:
    live = {
        "metadata": {"name": "a", "resourceVersion": "1", "generation": 1},
        "spec": {"x": 1},
        "status": {"ready": 0},
    }
    later = {**live, "metadata": {"name": "a", "resourceVersion": "2", "generation": 2}, "status": {"ready": 1}}
    assert owned_state(live) == owned_state(later)
    assert owned_state(live) != owned_state({**live, "spec": {"x": 2}})
