"""The Argo CD health script, run by a Lua as Argo CD does: a table of statuses and what Argo CD should show."""

from typing import Any

import lupa
import pytest

from tests.charts.chart import CHART

SCRIPT = (CHART / "files" / "argocd-health.lua").read_text()


def _health(obj: dict[str, Any]) -> tuple[str, str]:
    runtime = lupa.LuaRuntime(unpack_returned_tuples=True)
    runtime.globals().obj = runtime.table_from(obj, recursive=True)
    result = runtime.execute(SCRIPT)
    return result["status"], result["message"]


def _model(generation: int, observed: int, **conditions: str) -> dict[str, Any]:
    """A resource whose conditions are given as `<status>` or `<status>: <reason>`."""
    listed = []
    for kind, text in conditions.items():
        status, _, reason = text.partition(": ")
        listed.append({"type": kind, "status": status, "reason": reason, "message": f"about {kind}"})
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": observed, "conditions": listed}}


@pytest.mark.parametrize(
    ("obj", "status", "message"),
    [
        ({"metadata": {"generation": 1}}, "Progressing", "Waiting for the operator"),
        (_model(2, 1, UpToDate="True", Ready="True"), "Progressing", "generation 2"),
        (_model(1, 1, UpToDate="True", Ready="True"), "Healthy", "about UpToDate"),
        (_model(1, 1, UpToDate="False: RollingOut", Ready="True"), "Progressing", "RollingOut"),
        (_model(1, 1, UpToDate="False: RollingOut", Ready="False: Warming"), "Progressing", "Ready: Warming"),
        (
            _model(1, 1, UpToDate="False: RolloutAborted", Ready="True", Stalled="True: ProgressDeadlineExceeded"),
            "Degraded",
            "Stalled: ProgressDeadlineExceeded",
        ),
        (_model(1, 1, Accepted="False: BucketOutOfRange"), "Degraded", "Accepted: BucketOutOfRange"),
        (_model(1, 1, ArtifactVerified="False: NotFound"), "Progressing", "ArtifactVerified: NotFound"),
        (_model(1, 1, Ready="Unknown"), "Progressing", "Waiting for Ready"),
    ],
)
def test_argo_cd_shows_what_the_conditions_say(obj: dict[str, Any], status: str, message: str) -> None:
    shown = _health(obj)
    assert shown[0] == status
    assert message in shown[1]
