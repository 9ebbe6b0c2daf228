"""When the operator counts as stuck, with a clock that only moves when told."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from headway_operator import server
from headway_operator.cluster import Cluster
from headway_operator.metrics import Metrics
from headway_operator.runner import MISSED_RESYNCS, STUCK_QUEUE, STUCK_WORK, Runner
from headway_operator.store import Owner, Store
from headway_operator.workqueue import WorkQueue
from kubernetes.aio.client.api_client import ApiClient

KEY = Owner("md", "prod", "sentiment")


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Loop:
    """A runner whose first resync is done, and its clock."""

    runner: Runner
    queue: WorkQueue[Owner]
    metrics: Metrics
    clock: "Clock"


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    metrics, clock = Metrics(), Clock()
    queue = WorkQueue[Owner](clock=clock)
    async with ApiClient() as client:
        runner = Runner(
            cluster=Cluster(client, metrics=metrics),
            store=Store(),
            queue=queue,
            metrics=metrics,
            handlers={},
            resync_seconds=300.0,
            clock=clock,
        )
        yield Loop(runner, queue, metrics, clock)


async def test_an_idle_operator_is_well(loop: Loop) -> None:
    loop.clock.now = 299.0
    assert loop.runner.complaints() == []


async def test_a_pass_that_does_not_end_is_a_complaint(loop: Loop) -> None:
    loop.queue.add(KEY)
    loop.queue.take()
    loop.clock.now = STUCK_WORK
    assert loop.runner.complaints() == []
    loop.clock.now = STUCK_WORK + 1
    assert loop.runner.complaints() == ["a pass runs for 301 s"]
    loop.queue.done(KEY)
    assert loop.runner.complaints() == []


async def test_a_key_that_no_worker_takes_is_a_complaint(loop: Loop) -> None:
    loop.queue.add(KEY)
    loop.clock.now = STUCK_QUEUE + 1
    assert loop.runner.complaints() == ["a key waits for a worker for 121 s"]


async def test_missing_resyncs_are_a_complaint(loop: Loop) -> None:
    loop.clock.now = MISSED_RESYNCS * 300.0 + 1
    assert loop.runner.complaints() == ["no resync for 901 s"]


async def test_the_probe_fails_with_the_complaints(loop: Loop) -> None:
    serving = await server.serve(
        host="127.0.0.1", port=0, metrics=loop.metrics, queue=loop.queue, complaints=loop.runner.complaints
    )
    port = serving.addresses[0][1]
    try:
        assert (await _get(port, "/healthz")).startswith("HTTP/1.1 200")
        loop.queue.add(KEY)
        loop.clock.now = STUCK_QUEUE + 1
        answer = await _get(port, "/healthz")
        assert answer.startswith("HTTP/1.1 503")
        assert "a key waits" in answer
        metrics = await _get(port, "/metrics")
        assert "headway_queue_depth 1.0" in metrics
        assert "headway_queue_oldest_seconds 121.0" in metrics
    finally:
        await serving.cleanup()


async def _get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()
