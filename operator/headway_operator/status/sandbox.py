"""The sandbox: `status.revisions[].sandbox` and the condition `Sandboxed`, from what the pods report of themselves."""

from collections import defaultdict

from headway_api.conditions import ConditionType, Reason
from headway_api.podconfig import SandboxReport

from headway_operator.status.verdict import KEEP, Verdict, false, first, true, unknown
from headway_operator.status.view import View

FULL, PARTIAL, NONE = "Full", "Partial", "None"
MOST_NAMES = 3  # pods that a message names for one reason
LONGEST_PART = 200  # characters of a pod's words for one missing part
MOST_PARTS = 5


def level(view: View, revision: str) -> str | None:
    """Full, Partial or None: the least confined pod of a revision counts; as before while no pod's report is known."""
    reports = [pod.report.sandbox for pod in view.pods(revision) if pod.report and pod.report.sandbox]
    if not reports:
        return view.as_before(revision, "sandbox")
    if not any(map(_missing, reports)):
        return FULL
    return NONE if any(not report.landlock and not report.seccomp for report in reports) else PARTIAL


def sandboxed(view: View) -> Verdict:
    """Whether every pod that serves, or soon will, is confined by all parts of the sandbox."""
    return first((_unknown, _unconfined, _unsaid, _confined), view)


def _missing(report: SandboxReport) -> tuple[str, ...]:
    """The parts that are missing, in the pod's words; a report that contradicts itself is not believed."""
    plain = (*(() if report.landlock else ("Landlock",)), *(() if report.seccomp else ("seccomp",)))
    return tuple(part[:LONGEST_PART] for part in report.missing[:MOST_PARTS]) or plain


def _unknown(view: View) -> Verdict | None:
    pods = [pod for mine in view.live().values() for pod in mine]
    if pods and all(pod.report for pod in pods):
        return None
    told = view.condition_before(ConditionType.SANDBOXED)
    return KEEP if told else unknown(Reason.PREPARING, "No pod has said yet what confines it")


def _unconfined(view: View) -> Verdict | None:
    found: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for revision, pods in view.live().items():
        for pod in pods:
            if pod.report and pod.report.sandbox and (missing := _missing(pod.report.sandbox)):
                found[revision, missing].append(pod.name)
    if not found:
        return None
    told = (f"{', '.join(parts)} on {_names(pods)} of revision {name}" for (name, parts), pods in sorted(found.items()))
    advice = "use nodes whose kernel has it, or write spec.template.sandbox: Require to have such pods refused"
    return false(Reason.SANDBOX_INCOMPLETE, f"Missing: {'; '.join(told)}; {advice}")


def _unsaid(view: View) -> Verdict | None:
    silent = [
        name
        for name, pods in sorted(view.live().items())
        if any(pod.report and pod.report.sandbox is None for pod in pods)
    ]
    if not silent:
        return None
    message = f"Pods of {', '.join(silent)} have a runtime that says nothing of a sandbox, as older releases have"
    return unknown(Reason.NOT_REPORTED, message)


def _confined(view: View) -> Verdict:
    return true(Reason.CONFINED, "Landlock and seccomp confine every pod that serves")


def _names(pods: list[str]) -> str:
    more = f" and {len(pods) - MOST_NAMES} more" if len(pods) > MOST_NAMES else ""
    return f"pod{'s' if len(pods) > 1 else ''} {', '.join(pods[:MOST_NAMES])}{more}"
