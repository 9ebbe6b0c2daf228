"""The operator's rights follow from the kinds that it reads and writes: no more, no less.

The other half of the proof is in tests/cluster: there the operator works with nothing but these rights.
"""

from pathlib import Path

import pytest
from headway_operator.kinds import CHILDREN, EVENT, MODEL_DEPLOYMENT, POD, POD_EVENT

from tests.charts.chart import of_kind, render
from tests.charts.rbac import Right, asked, granted

USED = {
    *(
        Right(kind.group, kind.plural, verb)
        for kind in CHILDREN
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *(Right(kind.group, kind.plural, verb) for kind in (MODEL_DEPLOYMENT, POD) for verb in ("list", "watch")),
    Right(MODEL_DEPLOYMENT.group, f"{MODEL_DEPLOYMENT.plural}/status", "patch"),
    Right(POD.group, POD.plural, "patch"),  # the annotation that makes the kubelet look at its volumes
    Right(POD_EVENT.group, POD_EVENT.plural, "list"),  # why a pod does not start
    Right(EVENT.group, EVENT.plural, "create"),
}


def _operators_rights(helm_program: Path, **values: object) -> list[set[Right]]:
    roles = [obj for kind in ("Role", "ClusterRole") for obj in of_kind(render(helm_program, values), kind)]
    return [granted(role) for role in roles if role["metadata"]["name"] == "headway-operator"]


def test_the_cluster_role_grants_what_the_operator_uses_and_nothing_else(helm_program: Path) -> None:
    assert _operators_rights(helm_program) == [USED]


def test_a_role_in_a_namespace_grants_the_same(helm_program: Path) -> None:
    assert _operators_rights(helm_program, watchNamespaces=["prod", "staging"]) == [USED, USED]


def test_secrets_are_never_read() -> None:
    assert not [right for right in USED if right.resource.startswith("secrets")]


def test_a_wildcard_is_an_error_and_not_a_pass() -> None:
    role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]}]}
    with pytest.raises(ValueError, match="wildcards in r"):
        granted(role)


def test_a_log_is_read_with_groups_and_subresources() -> None:
    log = "/pods list\nserving.headway.dev/modeldeployments/status patch\n"
    assert asked(log) == {
        Right("", "pods", "list"),
        Right("serving.headway.dev", "modeldeployments/status", "patch"),
    }
