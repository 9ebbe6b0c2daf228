"""The queue's promises, with a clock that only moves when told."""

import asyncio

from headway_operator.workqueue import LONGEST_BACKOFF, WorkQueue


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queue_at(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, jitter=lambda: 0.0)


async def test_a_key_added_twice_is_taken_once() -> None:
    queue = queue_at(Clock())
    queue.add("a")
    queue.add("a")
    assert queue.depth == 1
    assert (queue.take(), queue.take()) == ("a", None)


async def test_keys_are_taken_in_the_order_of_their_arrival() -> None:
    queue = queue_at(Clock())
    for key in ("b", "a", "b", "c"):
        queue.add(key)
    assert [queue.take(), queue.take(), queue.take()] == ["b", "a", "c"]


async def test_a_key_in_work_is_given_to_nobody_else_and_comes_back_once_when_done() -> None:
    queue = queue_at(Clock())
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None


async def test_a_delayed_key_is_due_when_its_time_has_come() -> None:
    clock = Clock()
    queue = queue_at(clock)
    queue.add_after("a", 5.0)
    clock.now += 4.9
    assert queue.take() is None
    clock.now += 0.1
    assert queue.take() == "a"
    assert queue.take() is None


async def test_of_several_delays_the_shortest_counts() -> None:
    clock = Clock()
    queue = queue_at(clock)
    for seconds in (9.0, 2.0, 5.0):
        queue.add_after("a", seconds)
    clock.now += 2.0
    assert queue.take() == "a"
    queue.done("a")
    clock.now += 60.0
    assert queue.take() is None


async def test_adding_a_delayed_key_takes_it_at_once_and_only_once() -> None:
    clock = Clock()
    queue = queue_at(clock)
    queue.add_after("a", 5.0)
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a")
    clock.now += 60.0
    assert queue.take() is None


async def test_a_key_delayed_while_in_work_waits_for_its_time() -> None:
    clock = Clock()
    queue = queue_at(clock)
    queue.add("a")
    assert queue.take() == "a"
    queue.add_after("a", 3.0)
    queue.done("a")
    assert queue.take() is None
    clock.now += 3.0
    assert queue.take() == "a"


async def test_a_time_that_comes_while_the_key_is_in_work_is_not_lost() -> None:
    clock = Clock()
    queue = queue_at(clock)
    queue.add("a")
    queue.take()
    queue.add_after("a", 3.0)
    clock.now += 4.0
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"


async def test_failures_come_back_later_and_later_up_to_a_limit_and_success_starts_over() -> None:
    queue = queue_at(Clock())
    assert [queue.retry("a") for _ in range(4)] == [0.2, 0.4, 0.8, 1.6]
    assert [queue.retry("a") for _ in range(40)][-1] == LONGEST_BACKOFF
    queue.forget("a")
    assert queue.retry("a") == 0.2


async def test_a_backoff_has_jitter_and_respects_what_the_server_wishes() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=Clock(), jitter=lambda: 1.0)
    assert queue.retry("a") == 0.25
    assert queue.retry("a", at_least=7.0) == 7.0


async def test_waits_and_work_are_measured() -> None:
    clock = Clock()
    queue = queue_at(clock)
    assert (queue.oldest_wait, queue.longest_work) == (0.0, 0.0)
    queue.add("a")
    clock.now += 2.0
    queue.add("b")
    assert queue.oldest_wait == 2.0
    queue.take()
    clock.now += 3.0
    assert (queue.oldest_wait, queue.longest_work) == (3.0, 3.0)


async def test_a_waiting_worker_is_woken_by_a_key() -> None:
    queue = queue_at(Clock())
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add("a")
    assert await waiting == "a"


async def test_every_waiting_worker_gets_one_of_several_keys() -> None:
    queue = queue_at(Clock())
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]
