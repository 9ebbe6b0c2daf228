"""What runtime pods say of themselves: GET /report on their admin port, and only while something is in flight.

A report is final when the pod is ready with every bucket warm and obeys the knobs that are wanted, or when it has
failed; it is then kept for the pod's (uid, restarts) and not read again. So a settled system costs no calls, and an
operator that starts reads every pod once.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
from headway_api import names
from headway_api.podconfig import Phase, Report
from pydantic import ValidationError

from headway_operator.metrics import Metrics
from headway_operator.observed import Object
from headway_operator.pods import is_serving_process_up, restarts
from headway_operator.store import Owner

READERS = 50  # reports read at the same time, over all ModelDeployments
TIMEOUT = aiohttp.ClientTimeout(total=2.0)  # seconds for one report
MAX_REPORT = 1 << 16  # bytes; parts of it go into the status
MAX_NUMBER = 2**53  # what every reader of JSON knows

# How long until the next look while something is in flight: (looks without news, seconds)
_PACE = ((10, 0.3), (60, 1.0))
_SLOW = 5.0


@dataclass(frozen=True, slots=True)
class _Kept:
    restarts: int
    report: Report | None


class Reports:
    """The newest report of every live pod."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._kept: dict[Owner, dict[str, _Kept]] = {}  # owner -> pod UID -> what it said
        self._quiet_looks: dict[Owner, tuple[str | None, int]] = {}  # (knobs hash wanted, looks without news)
        self._session: aiohttp.ClientSession | None = None
        self._readers = asyncio.Semaphore(READERS)  # outside of the timeout: waiting for a turn is no failure

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def of(self, owner: Owner, pod: Object) -> Report | None:
        """What the pod said since its last restart."""
        kept = self._kept.get(owner, {}).get(pod["metadata"]["uid"])
        return kept.report if kept is not None and kept.restarts == restarts(pod) else None

    async def refresh(self, owner: Owner, pods: list[Object], knobs_hash: str | None) -> float | None:
        """Read what is in flight. Returns the seconds until the next look; None when everything is final."""
        due = [pod for pod in pods if self._in_flight(owner, pod, knobs_hash)]
        before = {pod["metadata"]["uid"]: self.of(owner, pod) for pod in pods}
        answers = await asyncio.gather(*(self._read(pod) for pod in due))
        kept = {pod["metadata"]["uid"]: _Kept(restarts(pod), before[pod["metadata"]["uid"]]) for pod in pods}
        for pod, report in zip(due, answers, strict=True):
            if report is not None:
                kept[pod["metadata"]["uid"]] = _Kept(restarts(pod), report)
        self._kept[owner] = kept
        news = any(kept[uid].report != report for uid, report in before.items())
        if not any(self._in_flight(owner, pod, knobs_hash) for pod in pods):
            self._quiet_looks.pop(owner, None)
            return None
        return self._pace(owner, knobs_hash, news=news)

    def forget(self, owner: Owner) -> None:
        """The ModelDeployment is gone."""
        self._kept.pop(owner, None)
        self._quiet_looks.pop(owner, None)

    def _in_flight(self, owner: Owner, pod: Object, knobs_hash: str | None) -> bool:
        readable = (pod.get("status") or {}).get("podIP") and is_serving_process_up(pod)
        if not readable or "deletionTimestamp" in pod["metadata"]:
            return False
        report = self.of(owner, pod)
        return report is None or not is_final(report, knobs_hash)

    def _pace(self, owner: Owner, knobs_hash: str | None, *, news: bool) -> float:
        wanted, looks = self._quiet_looks.get(owner, (knobs_hash, 0))
        looks = 0 if news or wanted != knobs_hash else looks + 1
        self._quiet_looks[owner] = (knobs_hash, looks)
        return next((pause for limit, pause in _PACE if looks < limit), _SLOW)

    async def _read(self, pod: Object) -> Report | None:
        address = pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._readers:
                report = await self._get(f"http://{host}:{names.ADMIN_PORT}/report")
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._metrics.reports_read.labels("unreachable").inc()
            return None
        except (ValueError, ValidationError):
            self._metrics.reports_read.labels("unreadable").inc()
            return None
        # Addresses are reused: an answer from another revision is the answer of another pod.
        expected = pod["metadata"].get("labels", {}).get(names.LABEL_REVISION)
        outcome = "read" if report.revision == expected else "misdirected"
        self._metrics.reports_read.labels(outcome).inc()
        return report if outcome == "read" else None

    async def _get(self, url: str) -> Report:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            # Nothing is decompressed: a model may have written the answer.
            self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, auto_decompress=False)
        async with self._session.get(url, allow_redirects=False) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > MAX_REPORT:
                    raise ValueError(f"report: more than {MAX_REPORT} bytes")
            report = Report.model_validate_json(body)
            if not is_plain(report.knobs.effective):
                raise ValueError("report: knobs.effective holds numbers that the API server would refuse")
            return report


def is_plain(value: Any) -> bool:
    """Whether a value can be written as it is: JSON knows no infinity, and servers no integer of a hundred digits."""
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not isinstance(value, int | float) or abs(value) <= MAX_NUMBER


def is_final(report: Report, knobs_hash: str | None) -> bool:
    """Whether reading the pod again would tell nothing new."""
    if report.phase is Phase.FAILED:
        return True
    warm = report.phase is Phase.READY and report.buckets.warm >= report.buckets.total
    return warm and (knobs_hash is None or report.knobs.hash == knobs_hash)
