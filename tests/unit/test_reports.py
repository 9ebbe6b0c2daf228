"""Reading pods' reports: from a real server on loopback, and only while something is in flight."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from headway_api import names
from headway_operator import reports
from headway_operator.metrics import Metrics
from headway_operator.reports import Reports
from headway_operator.store import Owner

OWNER = Owner("md", "prod", "sentiment")
HOST, REVISION = "127.83.0.1", "0a1b2c3d"
HASH = "a" * 12


class Clock:
    """A second goes by with each look at it, as between passes; or none, while `stopped`."""

    def __init__(self) -> None:
        self.now, self.stopped = 0.0, False

    def __call__(self) -> float:
        self.now += not self.stopped
        return self.now


class Pod:
    """The admin port of a pod: what it answers, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_once = self.most_at_once = 0
        self.body: Any = {"model": "sentiment", "revision": REVISION, "phase": "Loading"}
        self.delay = 0.0

    async def report(self, _: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.delay)
        self.at_once -= 1
        return web.Response(body=self.body) if isinstance(self.body, bytes) else web.json_response(self.body)

    def becomes(self, phase: str, *, warm: int = 2, knobs: str = HASH, revision: str = REVISION) -> None:
        buckets = {"total": 2, "warm": warm}
        self.body = {
            "model": "sentiment",
            "revision": revision,
            "phase": phase,
            "buckets": buckets,
            "knobs": {"hash": knobs},
        }


@pytest.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    served = Pod()
    app = web.Application()
    app.add_routes([web.get("/report", served.report)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    monkeypatch.setattr(names, "ADMIN_PORT", runner.addresses[0][1])
    yield served
    await runner.cleanup()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def reader(clock: Clock) -> AsyncIterator[Reports]:
    made = Reports(Metrics(), clock)
    yield made
    await made.close()


def live(*, uid: str = "u", restarts: int = 0, running: bool = True, **metadata: Any) -> dict[str, Any]:
    state = {"running": {}} if running else {"waiting": {}}
    status = {"podIP": HOST, "containerStatuses": [{"name": "serve", "restartCount": restarts, "state": state}]}
    return {
        "metadata": {"name": uid, "uid": uid, "labels": {names.LABEL_REVISION: REVISION}, **metadata},
        "status": status,
    }


async def test_a_pod_is_read_until_it_has_settled_and_then_once_a_minute(
    pod: Pod, reader: Reports, clock: Clock
) -> None:
    assert await reader.refresh(OWNER, [live()], HASH) is not None
    for phase, warm, knobs in (("Warming", 1, HASH), ("Ready", 1, HASH), ("Ready", 2, "b" * 12)):
        pod.becomes(phase, warm=warm, knobs=knobs)
        assert await reader.refresh(OWNER, [live()], HASH) is not None, (phase, warm, knobs)
    pod.becomes("Ready")
    assert await reader.refresh(OWNER, [live()], HASH) == 60
    asked = pod.asked
    assert await reader.refresh(OWNER, [live()], HASH) == 60
    assert pod.asked == asked
    clock.now += 60
    assert await reader.refresh(OWNER, [live()], HASH) == 60
    assert pod.asked == asked + 1
    found = reader.of(OWNER, live())
    assert found is not None
    assert found.phase == "Ready"


async def test_new_knobs_a_restart_and_a_new_operator_read_again(pod: Pod, reader: Reports) -> None:
    pod.becomes("Ready")
    await reader.refresh(OWNER, [live()], HASH)
    assert await reader.refresh(OWNER, [live()], "c" * 12) is not None
    assert pod.asked == 2
    assert reader.of(OWNER, live(restarts=1)) is None
    await reader.refresh(OWNER, [live(restarts=1)], HASH)
    assert pod.asked == 3


async def test_a_failed_pod_is_read_once(pod: Pod, reader: Reports) -> None:
    pod.becomes("Failed", warm=0)
    assert await reader.refresh(OWNER, [live()], HASH) is None


async def test_a_pod_that_starts_or_ends_is_not_read(pod: Pod, reader: Reports) -> None:
    pods = [live(running=False), live(uid="v", deletionTimestamp="2026-11-29T10:00:00Z")]
    assert await reader.refresh(OWNER, pods, HASH) is None
    assert pod.asked == 0


async def test_an_answer_of_another_revision_is_not_believed(pod: Pod, reader: Reports) -> None:
    pod.becomes("Ready", revision="ffffffff")
    assert await reader.refresh(OWNER, [live()], HASH) is not None
    assert reader.of(OWNER, live()) is None


def hostile(**parts: Any) -> bytes:
    """A report that only a model which has taken its pod over would give."""
    return json.dumps({"model": "sentiment", "revision": REVISION, "phase": "Ready", **parts}).encode()


def nested(depth: int) -> Any:
    return {} if depth == 0 else {"a": nested(depth - 1)}


BODIES = {
    "no JSON": b"not json",
    "no object": b"[]",
    "not all of it": b'{"model": "sentiment"}',
    "too large": b'"' + b"x" * (2 << 20) + b'"',
    "infinity": hostile(knobs={"effective": {"maxBatch": math.inf}}),
    "no number": hostile(knobs={"effective": {"queue": [math.nan]}}),
    "a number without end": hostile(knobs={"effective": {"maxBatch": 10**400}}),
    "more buckets than there are": hostile(buckets={"total": 10**30, "warm": 0}),
    "a part too large for a status": hostile(failure={"reason": "R", "message": "x" * 100_000}),
    "knobs too large for a status": hostile(knobs={"effective": {str(number): "x" * 100 for number in range(50)}}),
    "a reason that is no word": hostile(phase="Failed", failure={"reason": "All is well, \x1b[2J"}),
    "a reason that is too long": hostile(phase="Failed", failure={"reason": "R" * 100}),
    "no end of depth": hostile(knobs={"effective": nested(500)}),
    "half a character": b'{"model": "sentiment", "revision": "0a1b2c3d", "phase": "Ready", "signature": "\\ud800"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_an_answer_that_is_no_report_is_no_report(pod: Pod, reader: Reports, body: bytes) -> None:
    pod.body = body
    assert await reader.refresh(OWNER, [live()], HASH) is not None
    assert reader.of(OWNER, live()) is None


async def test_the_last_report_stays_while_a_pod_does_not_answer(
    pod: Pod, reader: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.becomes("Ready")
    await reader.refresh(OWNER, [live()], HASH)
    monkeypatch.setattr(names, "ADMIN_PORT", 1)
    assert await reader.refresh(OWNER, [live()], "c" * 12) is not None
    assert reader.of(OWNER, live()) is not None


async def test_looks_without_news_become_rarer_and_news_bring_them_back(pod: Pod, reader: Reports) -> None:
    pauses = [await reader.refresh(OWNER, [live()], HASH) for _ in range(63)]
    assert (pauses[0], pauses[30], pauses[62]) == (0.3, 1.0, 5.0)
    pod.becomes("Warming", warm=1)
    assert await reader.refresh(OWNER, [live()], HASH) == 0.3
    assert [await reader.refresh(OWNER, [live()], HASH) for _ in range(10)][-1] == 1.0
    assert await reader.refresh(OWNER, [live()], "d" * 12) == 0.3


async def test_only_so_many_pods_are_read_at_once(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "READERS", 2)
    reader = Reports(Metrics())
    pod.delay = 0.02
    try:
        await reader.refresh(OWNER, [live(uid=str(number)) for number in range(8)], HASH)
    finally:
        await reader.close()
    assert (pod.asked, pod.most_at_once) == (8, 2)


async def test_one_model_with_slow_pods_leaves_turns_to_others_and_ends_its_pass(
    pod: Pod, reader: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "READERS_OF_ONE", 2)
    monkeypatch.setattr(reports, "READS", 5)
    pod.delay = 0.02
    pods = [live(uid=str(number)) for number in range(12)]
    for expected in (5, 10, 15):
        await reader.refresh(OWNER, pods, HASH)
        assert (pod.asked, pod.most_at_once) == (expected, 2)
    assert all(reader.of(OWNER, each) for each in pods), "those that waited longest come first"


async def test_a_pod_is_not_read_again_in_every_pass_of_many(pod: Pod, reader: Reports, clock: Clock) -> None:
    """A pass that writes is followed by another at once: with news in each answer, that would have no end."""
    clock.stopped = True
    for _ in range(5):
        assert await reader.refresh(OWNER, [live()], HASH) == 0.3
    assert pod.asked == 1
    clock.now += 0.31
    await reader.refresh(OWNER, [live()], HASH)
    assert pod.asked == 2


async def test_a_pod_that_has_news_in_every_answer_is_read_less_in_the_end(
    pod: Pod, reader: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_MOST_NEWS", 20)
    pauses = []
    for number in range(90):
        pod.becomes("Warming", warm=number % 2)
        pauses.append(await reader.refresh(OWNER, [live()], HASH))
    assert (pauses[0], pauses[19], pauses[89]) == (0.3, 0.3, 5.0)
    assert await reader.refresh(OWNER, [live()], "d" * 12) == 0.3, "knobs of the user are another matter"


async def test_words_of_a_pod_are_passed_on_as_one_line_of_bounded_length(pod: Pod, reader: Reports) -> None:
    said = {"reason": "Broken", "message": "a\n\x1b[2J\u202eb" + "x" * 10_000, "field": "f" * 10_000}
    pod.body = hostile(phase="Failed", failure=said, sandbox={"missing": ["a\tb"]})
    await reader.refresh(OWNER, [live()], HASH)
    report = reader.of(OWNER, live())
    assert report is not None
    assert report.failure is not None
    assert report.failure.message.startswith("a  [2J bxx")
    assert (len(report.failure.message), len(report.failure.field or "")) == (2000, 2000)
    assert report.sandbox is not None
    assert report.sandbox.missing == ["a b"]


async def test_what_a_pod_said_first_of_its_sandbox_counts(pod: Pod, reader: Reports) -> None:
    """A model that found a hole in its sandbox would say that there is none."""
    for missing, restarted in ((["Landlock"], 0), ([], 0), ([], 1)):
        pod.body = hostile(phase="Warming", sandbox={"seccomp": True, "missing": missing})
        await reader.refresh(OWNER, [live(restarts=restarted)], HASH)
        report = reader.of(OWNER, live(restarts=restarted))
        assert report is not None
        assert report.sandbox is not None
        assert report.sandbox.missing == ([] if restarted else ["Landlock"])


async def test_nothing_that_a_pod_sets_comes_back_to_it(pod: Pod, reader: Reports) -> None:
    await reader.refresh(OWNER, [live()], HASH)
    assert reader._session is not None
    assert isinstance(reader._session.cookie_jar, aiohttp.DummyCookieJar)
