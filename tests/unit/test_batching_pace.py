"""Who would wait in vain is told at once: how fast the line moves, and what follows for the next request."""

import pytest
from headway_runtime.batching.line import Line
from headway_runtime.batching.pace import ENOUGH, Pace
from headway_runtime.batching.policy import Limits, Priority, Ticket
from headway_runtime.batching.work import Work
from headway_runtime.errors import OverloadedError, QueueFullError

LIMITS = Limits(max_batch=4, max_wait=0.0, capacity=100, bytes=10**6)


def test_the_time_of_a_line_is_its_rows_times_what_a_row_took() -> None:
    pace = Pace(instances=1)
    for _ in range(ENOUGH):
        pace.ran(0.2, 4)
    assert pace.until_run(10) == pytest.approx(0.5)
    for _ in range(100):
        pace.ran(0.4, 4)
    assert pace.until_run(10) == pytest.approx(1.0, rel=0.01)


def test_instances_share_the_line() -> None:
    pace = Pace(instances=4)
    for _ in range(ENOUGH):
        pace.ran(0.2, 4)
    assert pace.until_run(10) == pytest.approx(0.125)


def test_nothing_is_said_after_a_few_runs() -> None:
    pace = Pace(instances=1)
    for _ in range(ENOUGH - 1):
        pace.ran(9.0, 1)
    assert pace.until_run(100) == 0


def work(number: int, patience: float, priority: Priority = Priority.NORMAL) -> Work:
    ticket = Ticket(number, "group", 1, 1, float(number), number + patience, (), priority)
    return Work(ticket, (), {}, None, lambda: False)


def slow_line(waiting: int) -> Line:
    """A line whose rows take 0.1 s each."""
    line = Line(LIMITS, lambda outcomes, record: None)
    for _ in range(ENOUGH):
        line.ran(0.4, 4)
    for number in range(waiting):
        line.submit([work(number, 1000.0)])
    return line


def test_a_request_that_would_start_too_late_is_refused_at_once_and_told_when_to_come_back() -> None:
    line = slow_line(25)
    with pytest.raises(OverloadedError, match=r"need 2\.5 s .* has 2 s left .* try again in 3 s") as refusal:
        line.submit([work(50, 2.0)])
    assert (refusal.value.status, refusal.value.retry_after, refusal.value.admitted) == (429, 3, False)
    assert line.rows == 25
    line.submit([work(51, 3.0)])
    line.submit([work(52, 2.0, Priority.HIGH)])


def test_an_empty_line_takes_everybody() -> None:
    line = slow_line(0)
    line.submit([work(0, 0.001)])


def test_a_full_line_says_when_to_come_back() -> None:
    line = slow_line(100)
    with pytest.raises(QueueFullError, match="at most 100 rows wait") as refusal:
        line.submit([work(200, 1000.0)])
    assert refusal.value.retry_after in (10, 11)  # 100 rows of 0.1 s, as far as floating point tells
