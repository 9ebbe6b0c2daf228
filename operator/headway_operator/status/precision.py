"""In which precision the pods keep large weights: `status.revisions[].precision`, from what they report."""

from headway_api.types import Precision

from headway_operator.status.view import View


def level(view: View, revision: str) -> str | None:
    """BFloat16 or Int8; as before while no pod says it; None: as exported."""
    said = sorted({pod.report.precision for pod in view.pods(revision) if pod.report and pod.report.precision})
    if not said:
        return view.as_before(revision, "precision")
    return next((each.value for each in said if each is not Precision.EXPORTED), None)
