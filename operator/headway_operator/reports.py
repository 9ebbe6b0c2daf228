"""What runtime pods say of themselves: GET /report on their admin port, often while something is in flight.

A report is settled when the pod is ready with every bucket warm and obeys the knobs that are wanted, or when it has
failed; it is then kept for the pod's (uid, restarts). A pod that failed is not read again, one that serves once a
minute, for its recommendation. So a settled system costs few calls, and an operator that starts reads every pod once.

A model may have taken its pod over. What such a pod says is bounded (`heard`), and so is what it costs: one that is
slow or never final, or has news in every answer, is read less and less, and takes no turns from pods of others.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from headway_api import names
from headway_api.podconfig import Phase, Report

from headway_operator import heard
from headway_operator.metrics import Metrics
from headway_operator.observed import Object
from headway_operator.pods import is_serving_process_up, restarts
from headway_operator.store import Owner

READERS = 50  # reports read at the same time, over all ModelDeployments
READERS_OF_ONE = 25  # and for one of them
READS = 100  # in one pass, those first that were read longest ago
TIMEOUT = aiohttp.ClientTimeout(total=2.0)  # seconds for one report
MAX_REPORT = 1 << 16  # bytes
MAX_KNOBS = 1 << 12  # bytes of its part about knobs, which goes into the status

# How long until the next look while something is in flight: (looks without news, seconds)
_PACE = ((10, 0.3), (60, 1.0))
_SLOW = 5.0
CALM = 60.0  # seconds between two looks at a pod that has settled
_SOONEST = 0.3  # seconds between two reads of a pod, however often there is a pass: a pass that writes makes another
_MOST_NEWS = 1000  # looks at one set of knobs after which news no longer bring the next look forward


@dataclass(frozen=True, slots=True)
class _Kept:
    restarts: int
    report: Report | None
    read_at: float | None = None  # by the clock; None: never


@dataclass(frozen=True, slots=True)
class _Looks:
    knobs_hash: str | None  # the knobs that were wanted
    quiet: int = 0  # looks since there were news
    all: int = 0


class Reports:
    """The newest report of every live pod."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._kept: dict[Owner, dict[str, _Kept]] = {}  # owner -> pod UID -> what it said
        self._looks: dict[Owner, _Looks] = {}
        self._session: aiohttp.ClientSession | None = None
        self._readers = asyncio.Semaphore(READERS)  # outside of the timeout: waiting for a turn is no failure

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def of(self, owner: Owner, pod: Object) -> Report | None:
        """What the pod said since its last restart."""
        kept = self._kept.get(owner, {}).get(_uid(pod))
        return kept.report if kept is not None and kept.restarts == restarts(pod) else None

    async def refresh(self, owner: Owner, pods: list[Object], knobs_hash: str | None) -> float | None:
        """Read what is in flight, or has been calm for long. Returns the seconds until the next look; None when no pod
        will say anything new.
        """
        before = {_uid(pod): self._kept_of(owner, pod) for pod in pods}
        due = [pod for pod in pods if self._is_due(before[_uid(pod)], self._pause(owner, pod, knobs_hash))]
        due = sorted(due, key=lambda pod: before[_uid(pod)].read_at or 0.0)[:READS]
        turns = asyncio.Semaphore(READERS_OF_ONE)
        answers = await asyncio.gather(*(self._read(pod, turns) for pod in due))
        read = {
            _uid(pod): answer and _since(before[_uid(pod)].report, answer)
            for pod, answer in zip(due, answers, strict=True)
        }
        now = self._clock()
        self._kept[owner] = {
            key: _Kept(kept.restarts, read[key] or kept.report, now) if key in read else kept
            for key, kept in before.items()
        }
        pauses = [pause for pod in pods if (pause := self._pause(owner, pod, knobs_hash)) is not None]
        if _SOONEST not in pauses:
            self._looks.pop(owner, None)
            return min(pauses, default=None)
        news = any(answer is not None and answer != before[key].report for key, answer in read.items())
        return self._pace(owner, knobs_hash, looked=bool(read), news=news)

    def forget(self, owner: Owner) -> None:
        """The ModelDeployment is gone."""
        self._kept.pop(owner, None)
        self._looks.pop(owner, None)

    def _kept_of(self, owner: Owner, pod: Object) -> _Kept:
        """What is kept of a pod; of one that was restarted only when it was read."""
        kept = self._kept.get(owner, {}).get(_uid(pod))
        if kept is None or kept.restarts == restarts(pod):
            return kept or _Kept(restarts(pod), None)
        return _Kept(restarts(pod), None, kept.read_at)

    def _is_due(self, kept: _Kept, pause: float | None) -> bool:
        if pause is None:
            return False
        return kept.read_at is None or not 0 <= self._clock() - kept.read_at < pause

    def _pause(self, owner: Owner, pod: Object, knobs_hash: str | None) -> float | None:
        """Seconds that lie at least between two reads of a pod; None: it is not read."""
        readable = (pod.get("status") or {}).get("podIP") and is_serving_process_up(pod)
        if not readable or "deletionTimestamp" in pod["metadata"]:
            return None
        report = self.of(owner, pod)
        if report is None or not is_settled(report, knobs_hash):
            return _SOONEST
        return None if report.phase is Phase.FAILED else CALM

    def _pace(self, owner: Owner, knobs_hash: str | None, *, looked: bool, news: bool) -> float:
        looks = self._looks.get(owner, _Looks(knobs_hash))
        if looks.knobs_hash != knobs_hash:
            looks = _Looks(knobs_hash)
        elif looked:
            quiet = 0 if news and looks.all < _MOST_NEWS else looks.quiet + 1
            looks = _Looks(knobs_hash, quiet, looks.all + 1)
        self._looks[owner] = looks
        return next((pause for limit, pause in _PACE if looks.quiet < limit), _SLOW)

    async def _read(self, pod: Object, turns: asyncio.Semaphore) -> Report | None:
        address = pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        try:
            async with turns, self._readers:
                report = await self._get(f"http://{host}:{names.ADMIN_PORT}/report")
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._metrics.reports_read.labels("unreachable").inc()
            return None
        except ValueError:
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
            # Nothing is decompressed and nothing remembered: a model may have written the answer.
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=TIMEOUT, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        async with self._session.get(url, allow_redirects=False) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > MAX_REPORT:
                    raise ValueError(f"report: more than {MAX_REPORT} bytes")
            report = heard.read(Report, bytes(body))
            if len(report.knobs.to_json()) > MAX_KNOBS:
                raise ValueError(f"report: more than {MAX_KNOBS} bytes about knobs")
            return report


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _since(first: Report | None, now: Report) -> Report:
    """What a pod says now. How it is confined, it cannot change: what it said of that before its model ran counts."""
    return now if first is None or first.sandbox is None else now.model_copy(update={"sandbox": first.sandbox})


def is_settled(report: Report, knobs_hash: str | None) -> bool:
    """Whether nothing is on its way that the pod would tell."""
    if report.phase is Phase.FAILED:
        return True
    warm = report.phase is Phase.READY and report.buckets.warm >= report.buckets.total
    return warm and (knobs_hash is None or report.knobs.hash == knobs_hash)
