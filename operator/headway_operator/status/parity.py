"""Golden answers: `status.revisions[].parity`, and the words about answers that differ and are served all the same.

With `spec.verification.onMismatch: Warn`, such a pod serves; otherwise it ends as `ParityFailed`.
"""

from headway_api.podconfig import ParityReport, Phase

from headway_operator.status.view import View

AGREES, DIFFERS = "Agrees", "Differs"
LONGEST_WORDS = 300  # characters of a pod's own words


def level(view: View, revision: str) -> str | None:
    """Agrees or Differs, by every pod that ran golden answers; as before while none has; None: there are none, or no
    pod admits one of them.
    """
    reports = [pod.report for pod in view.pods(revision) if pod.report]
    if not any(report.parity or report.phase is Phase.READY for report in reports):
        return view.as_before(revision, "parity")
    found = [report.parity.agrees for report in reports if report.parity and report.parity.samples]
    return (AGREES if all(found) else DIFFERS) if found else None


def differing(view: View) -> list[str]:
    """The revisions that answer requests and whose answers differ from the golden ones."""
    return sorted(name for name in view.facts.acked if level(view, name) == DIFFERS)


def is_told(view: View, revision: str) -> bool:
    """Whether a pod of it says so now; after a restart of the operator, status alone may remember it."""
    return _worst(view, revision) is not None


def words(view: View, revision: str) -> str:
    """What the pod says whose answers differ most."""
    worst = _worst(view, revision)
    detail = (worst.message[:LONGEST_WORDS] or f"by up to {worst.largest_difference:.3g}") if worst else ""
    return (
        f"answers of revision {revision} differ from the golden ones of its artifact{f': {detail}' if detail else ''}"
    )


def _worst(view: View, revision: str) -> ParityReport | None:
    reports = [pod.report.parity for pod in view.pods(revision) if pod.report and pod.report.parity]
    return max((r for r in reports if not r.agrees), key=lambda r: (r.largest_difference, r.message), default=None)
