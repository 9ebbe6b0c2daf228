"""`status.generation`: room for sequences, by the pods of the stable version.

Of a pod's figures, those that stay as they are while nothing changes are told; what moves with every request (blocks
in use) is a metric. The usual length is rounded up, so that it is written seldom.
"""

from headway_api.podconfig import GenerationReport

from headway_operator.observed import Object
from headway_operator.status.view import View

STEP = 1.25  # a usual length is told anew when it has changed by so much


def generation(view: View) -> Object | None:
    """The pod with the least room speaks; as before while none does. None: no text is generated."""
    before: Object | None = view.before.get("generation")
    pods = [pod for pod in view.pods(view.stable) if pod.ready]
    said = [pod.report.generation for pod in pods if pod.report]
    reports = [each for each in said if each]
    if not said:
        return before
    if not reports:
        return None
    return _told(min(reports, key=lambda each: (each.sequences, each.blocks)), before)


def _told(report: GenerationReport, before: Object | None) -> Object:
    usual, recommended = report.length_p99, report.recommended_max_length
    fixed = {
        "blocks": report.blocks,
        "blockTokens": report.block_tokens,
        "bytesPerToken": report.bytes_per_token,
        "cacheBytes": report.cache_bytes,
        "maxLength": report.max_length,
        "sequences": report.sequences,
        "kernels": report.kernels[:40],
    }
    moving = {"lengthP99": usual, "sequencesP99": report.sequences_p99, "recommendedMaxLength": recommended}
    old = (before or {}).get("lengthP99")
    if before and old and usual and old / STEP < usual < old * STEP:
        moving = {key: before.get(key) for key in moving}
    return {key: value for key, value in {**fixed, **moving}.items() if value is not None}
