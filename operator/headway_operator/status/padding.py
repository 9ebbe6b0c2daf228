"""The condition `PaddingProven`: along which dimensions requests of different sizes share a run, as the pods tried.

A pod that pads changes no answer, or it does not pad; this says which of the two, because the second one costs.
"""

from headway_api.conditions import ConditionType, Reason
from headway_api.podconfig import PaddingReport
from headway_api.podconfig import Verdict as Trial

from headway_operator.status.verdict import KEEP, Verdict, false, first, true, unknown
from headway_operator.status.view import View

LONGEST_WORDS = 200  # characters of a pod's own words for one dimension
MOST_DIMENSIONS = 8

Found = list[tuple[str, PaddingReport]]
"""(revision, what one of its pods found), each once."""


def padding_proven(view: View) -> Verdict:
    """Whether padding was shown to change no answer, in every dimension in which requests may differ."""
    return first((_unread, _failed, _unproven, _trusted, _padded), view)


def _found(view: View, trial: Trial) -> Found:
    said = {
        (revision, each.dimension): (revision, each)
        for revision, pods in sorted(view.live().items())
        for pod in reversed(pods)
        for each in (pod.report.padding if pod.report else ())
        if each.verdict is trial
    }
    return list(said.values())[:MOST_DIMENSIONS]


def _words(found: Found) -> str:
    return "; ".join(
        f"{each.dimension} of revision {revision}{f': {each.message[:LONGEST_WORDS]}' if each.message else ''}"
        for revision, each in found
    )


def _names(found: Found) -> str:
    return ", ".join(dict.fromkeys(each.dimension for _, each in found))


def _unread(view: View) -> Verdict | None:
    """Pods try it after the warm-up: what one that still loads says is not the last word."""
    pods = [pod for mine in view.live().values() for pod in mine]
    if pods and all(pod.report and (pod.ready or pod.report.padding) for pod in pods):
        return None
    told = view.condition_before(ConditionType.PADDING_PROVEN)
    return KEEP if told else unknown(Reason.PREPARING, "No pod has tried yet whether padding changes an answer")


def _failed(view: View) -> Verdict | None:
    if not (found := _found(view, Trial.FAILED)):
        return None
    return false(
        Reason.PADDING_CHANGES_ANSWERS,
        f"Only requests of equal size share a run, because padding changes answers along {_words(found)}",
    )


def _unproven(view: View) -> Verdict | None:
    if not (found := _found(view, Trial.UNPROVEN)):
        return None
    return false(Reason.NOT_PADDED, f"Only requests of equal size share a run along {_words(found)}")


def _trusted(view: View) -> Verdict | None:
    if not (found := _found(view, Trial.TRUSTED)):
        return None
    return unknown(Reason.TRUSTED, f"spec.batching.padding is Trusted: padded without a trial along {_names(found)}")


def _padded(view: View) -> Verdict:
    if never := _found(view, Trial.NEVER):
        return true(Reason.NOTHING_TO_PAD, f"spec.batching.padding is Never: nothing is padded along {_names(never)}")
    if proven := _found(view, Trial.PROVEN):
        return true(Reason.PROVEN, f"Padding changed no answer along {_names(proven)}, in every pod that serves")
    return true(Reason.NOTHING_TO_PAD, "Requests differ in nothing but their number of rows")
