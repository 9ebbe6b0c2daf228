"""`status.recommendation`: what the latest minutes of load say of the knobs, by the pods that serve.

Advice changes nothing by itself, and is written again only when it is another advice: its figures move all the time.
"""

from collections import Counter

from headway_api.podconfig import Recommendation

from headway_operator.observed import Object
from headway_operator.status.view import View

LONGEST_WORDS = 500  # characters of a pod's own words


def recommendation(view: View) -> Object | None:
    """What most pods of the stable version say; as before while it is the same advice, or while they say nothing."""
    before: Object | None = view.before.get("recommendation")
    pods = [pod for pod in view.pods(view.stable) if pod.ready]
    said = [pod.report.recommendation for pod in pods if pod.report and pod.report.recommendation]
    if not said:
        return before
    votes = Counter(map(_advice, said))
    chosen = max(said, key=lambda each: (votes[_advice(each)], each.message))
    if before is not None and _advice(chosen) == tuple(before.get(key) for key in ("reason", "maxBatch", "maxWait")):
        return before
    return {**chosen.to_dict(), "message": chosen.message[:LONGEST_WORDS]}


def _advice(said: Recommendation) -> tuple[str, int | None, str | None]:
    return said.reason.value, said.max_batch, said.max_wait
