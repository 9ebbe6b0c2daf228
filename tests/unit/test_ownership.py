"""Whose an object is."""

from typing import Any

import pytest
from headway_api import names
from headway_operator.ownership import Ownership, created_by_post, ownership, upgraded_managers

OURS = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_MODEL: "sentiment"}
ROUTER = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}


def obj(
    labels: dict[str, str] | None, uid: str | None = None, *, kind: str = names.KIND, controller: bool = True
) -> Any:
    owners = [{"kind": kind, "name": "sentiment", "uid": uid, "controller": controller}] if uid else []
    return {"metadata": {"labels": labels, "ownerReferences": owners}}


CASES = [
    ("our controller", obj(OURS, "u"), obj(OURS, "u"), Ownership.OURS),
    ("our controller, a label removed by hand", obj(OURS, "u"), obj(None, "u"), Ownership.OURS),
    ("a user's, without owner", obj(OURS, "u"), obj(None), Ownership.FOREIGN),
    ("a user's, with labels copied from ours", obj(OURS, "u"), obj(OURS), Ownership.FOREIGN),
    ("a user's, to be collected with ours", obj(OURS, "u"), obj({}, "u", controller=False), Ownership.FOREIGN),
    ("a predecessor's of the same name", obj(OURS, "u"), obj(OURS, "old"), Ownership.STALE),
    ("another controller's", obj(OURS, "u"), obj({}, "x", kind="Application"), Ownership.FOREIGN),
    ("another controller's, labels copied", obj(OURS, "u"), obj(OURS, "x", kind="Application"), Ownership.FOREIGN),
    ("the router's", obj(ROUTER), obj(ROUTER), Ownership.OURS),
    ("a user's where the router's should be", obj(ROUTER), obj({}), Ownership.FOREIGN),
    ("a model's where the router's should be", obj(ROUTER), obj(ROUTER, "u"), Ownership.FOREIGN),
]


@pytest.mark.parametrize(("desired", "live", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_ownership(desired: Any, live: Any, expected: Ownership) -> None:
    assert ownership(desired, live) is expected


def entry(operation: str, manager: str = names.FIELD_MANAGER, subresource: str = "") -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:data": {}}, "subresource": subresource}


def managed(*entries: dict[str, Any]) -> Any:
    return {"metadata": {"managedFields": list(entries)}}


def test_the_entry_of_our_post_becomes_one_of_apply_and_others_stay() -> None:
    others = entry("Update", "kubectl"), entry("Update", subresource="status")
    assert upgraded_managers(managed(entry("Update"), *others)) == [entry("Apply"), *others]


def test_an_entry_of_apply_that_is_there_already_stays_the_only_one() -> None:
    assert upgraded_managers(managed(entry("Update"), entry("Apply"))) == [entry("Apply")]


def test_nothing_is_upgraded_twice() -> None:
    assert not created_by_post(
        managed(entry("Apply"), entry("Update", "kubectl"), entry("Update", subresource="status"))
    )
    assert upgraded_managers(managed(entry("Apply"))) is None
