"""The two loops against real servers, good and bad: what they count, what they time, and that they always end."""

import asyncio
import statistics
import threading
import time

import pytest
from headway_runtime.bench.connection import Address
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.load import closed_loop, open_loop
from headway_runtime.bench.samples import Samples

from tests.ports import free_port
from tests.unit.bench_server import answer, bench_server, request

REQUEST = request()


async def at_once(number: int, body: bytes) -> bytes:
    return answer(body)


def test_a_closed_loop_sends_as_many_as_asked_and_hears_every_answer() -> None:
    heard: list[tuple[int, int, bytes]] = []
    with bench_server(at_once) as server:
        bodies = [b"%d" % number for number in range(7)]
        samples = closed_loop(
            server.address,
            [request(body) for body in bodies],
            connections=3,
            seconds=60,
            count=100,
            observe=lambda *said: heard.append(said),
        )
        assert (server.requests, server.connections) == (100, 3)
    assert (samples.offered, len(samples.latencies), samples.errors) == (100, 100, 0)
    assert samples.seconds < 10, "it has not waited for its end"
    assert all(status == 200 and body == bodies[at] for at, status, body in heard)
    assert {at for at, _, _ in heard} == set(range(7))


def test_a_closed_loop_has_as_many_requests_in_flight_as_connections() -> None:
    now, most = 0, 0
    took: list[float] = []

    async def slow(number: int, body: bytes) -> bytes:
        nonlocal now, most
        now += 1
        most = max(most, now)
        began = time.monotonic()
        await asyncio.sleep(0.02)
        took.append(time.monotonic() - began)
        now -= 1
        return answer()

    with bench_server(slow) as server:
        samples = closed_loop(server.address, [REQUEST], connections=5, seconds=0.5)
    assert most == 5
    assert 0.02 <= samples.summary().p50 < 2 * statistics.median(took) + 0.2
    assert samples.throughput <= 5 / 0.02


def test_an_open_loop_offers_its_rate_whatever_the_server_does() -> None:
    async def slow(number: int, body: bytes) -> bytes:
        await asyncio.sleep(0.1)
        return answer()

    with bench_server(slow) as server:
        samples = open_loop(server.address, [REQUEST], rate=200, seconds=1, connections=100)
    assert 150 <= samples.offered <= 250  # a Poisson process: 200, standard deviation 14
    assert len(samples.latencies) == samples.offered
    assert 0.1 <= samples.summary().p50 < 1  # a loop that waited for each answer would need 20 s for as many


def test_a_server_that_stops_for_a_moment_is_seen_by_the_open_loop_alone() -> None:
    """Coordinated omission: a closed loop with one client asks nothing while the server stands still."""

    def stopping() -> object:
        stopped = threading.Event()

        async def stops_once(number: int, body: bytes) -> bytes:
            if number == 20 and not stopped.is_set():
                stopped.set()
                time.sleep(0.5)  # noqa: ASYNC251 - the whole server
            return answer()

        return stops_once

    with bench_server(stopping()) as server:  # type: ignore[arg-type]
        closed = closed_loop(server.address, [REQUEST], connections=1, seconds=1)
    with bench_server(stopping()) as server:  # type: ignore[arg-type]
        opened = open_loop(server.address, [REQUEST], rate=100, seconds=1)
    assert closed.summary().p90 < 0.25
    assert opened.summary().p90 > 0.25  # about half of the requests were meant for the half second


def test_a_latency_counts_from_when_the_request_was_meant_to_be_sent() -> None:
    async def slow(number: int, body: bytes) -> bytes:
        await asyncio.sleep(0.05)
        return answer()

    with bench_server(slow) as server:
        samples = open_loop(server.address, [REQUEST], rate=100, seconds=0.5, connections=1, timeout=10)
    assert samples.summary().most > 1.0  # about 50 requests of 50 ms, one after the other, meant for half a second
    assert samples.throughput <= 20  # what came later was no good answer of that half second


def test_refusals_and_lost_connections_are_counted_apart_and_the_loop_goes_on() -> None:
    async def bad(number: int, body: bytes) -> bytes | None:
        match number % 5:
            case 0:
                return None
            case 1:
                return answer(status=429)
            case 2:
                return answer(headers="connection: close\r\n")
            case 3:
                return b"HTTP/1.1 200 OK\r\nno-length: 1\r\n\r\n"
            case _:
                return answer()

    with bench_server(bad) as server:
        samples = closed_loop(server.address, [REQUEST], connections=2, seconds=60, count=50)
        connections = server.connections
    assert samples.losses == {"connection_lost": 10, "malformed": 10}
    assert {status: len(times) for status, times in samples.refusals.items()} == {429: 10}
    assert len(samples.latencies) == 20
    assert connections >= 30  # a connection that ended was made again


def test_answers_in_pieces_are_put_together() -> None:
    whole = answer(b"x" * 200_000, headers="x-headway-batch-size: 4\r\nx-headway-queue-ms: 1.5\r\n")
    bodies: list[bytes] = []

    async def large(number: int, body: bytes) -> bytes:
        return whole

    with bench_server(large) as server:
        samples = closed_loop(
            server.address, [REQUEST], connections=1, seconds=60, count=3, observe=lambda *said: bodies.append(said[2])
        )
    assert bodies == [b"x" * 200_000] * 3
    assert samples.mean_batch == 4
    assert samples.queue_seconds == pytest.approx(0.0045)


@pytest.mark.parametrize("loop", ["closed", "open"])
def test_a_server_that_never_answers_ends_the_loop_all_the_same(loop: str) -> None:
    async def never(number: int, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return answer()

    began = time.monotonic()
    with bench_server(never) as server:
        if loop == "closed":
            samples = closed_loop(server.address, [REQUEST], connections=2, seconds=0.3, timeout=0.5)
        else:
            samples = open_loop(server.address, [REQUEST], rate=50, seconds=0.3, timeout=0.5, connections=4)
    assert time.monotonic() - began < 50, "before the server would have answered"
    assert samples.losses.keys() <= {"timeout", "unanswered"}
    assert samples.losses.total() == samples.offered > 0
    assert samples.summary().p99_all == float("inf")


def test_a_server_that_ends_in_the_middle_costs_its_requests_and_not_the_loop() -> None:
    answered = threading.Event()
    found: list[Samples] = []

    def ask(address: Address) -> None:
        found.append(closed_loop(address, [REQUEST], connections=2, seconds=2, timeout=0.5))

    async def tells(number: int, body: bytes) -> bytes:
        if number == 2:  # its client has read an answer
            answered.set()
        return answer()

    with bench_server(tells) as server:
        thread = threading.Thread(target=ask, args=(server.address,))
        thread.start()
        assert answered.wait(60)
    thread.join(60)
    (samples,) = found
    assert len(samples.latencies) > 0
    assert samples.losses.total() > 0


def test_where_nothing_listens_it_says_so() -> None:
    with pytest.raises(BenchError, match="nothing answers at 127"):
        closed_loop(Address("127.0.0.1", free_port()), [REQUEST], connections=1, seconds=0.1, timeout=0.1)


@pytest.mark.parametrize(("rate", "connections"), [(0, 1), (float("nan"), 1), (-1, 1), (1, 0), (1, 100_000)])
def test_what_cannot_be_measured_is_refused(rate: float, connections: int) -> None:
    with pytest.raises(BenchError):
        open_loop(Address("127.0.0.1", 1), [REQUEST], rate=rate, seconds=1, connections=connections)
