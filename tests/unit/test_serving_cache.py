"""The response cache: what is equal, what is kept, and who is computed when equal requests come at the same time."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from headway_runtime.batching.policy import Priority
from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ProgramFailedError,
    QueueFullError,
    RequestError,
)
from headway_runtime.metrics import Metrics
from headway_runtime.serving.cache import ENTRY_BYTES, ResponseCache, key_of
from headway_runtime.serving.values import BytesArray, Call, Given, Output, Reply
from hypothesis import given, settings
from hypothesis import strategies as st

Result = Reply | RequestError | None


def reply(number: float = 1.0, elements: int = 4) -> Reply:
    return Reply((Output("y", "FP32", torch.full((elements,), number)),), queue_seconds=0.5, batch_rows=7)


@dataclass
class Client:
    """A call, and what came of it."""

    deadline: float = 1e9
    priority: Priority = Priority.NORMAL
    left: bool = False
    results: list[Result] = field(default_factory=list)

    def call(self) -> Call:
        return Call(self.deadline, lambda: self.left, self.results.append, self.priority)

    @property
    def result(self) -> Result:
        (result,) = self.results
        return result


@dataclass
class Desk:
    """A cache, and the computations that it has asked for."""

    size: int = 1 << 20
    metrics: Metrics = field(default_factory=Metrics)
    running: list[Call] = field(default_factory=list)
    refuse: RequestError | None = None

    def __post_init__(self) -> None:
        self.cache = ResponseCache(self.size, self.metrics)

    def compute(self, call: Call) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.running.append(call)

    def send(self, key: bytes = b"k", **circumstances: object) -> Client:
        client = Client(**circumstances)  # type: ignore[arg-type]
        self.cache.answer(key, client.call(), self.compute)
        return client

    def outcome(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value("headway_cache_requests_total", {"outcome": name})

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name)


def test_what_was_answered_once_is_answered_again_without_computing() -> None:
    desk = Desk()
    first = desk.send()
    desk.running[0].done(reply())
    again = desk.send()
    assert len(desk.running) == 1
    assert isinstance(first.result, Reply)
    assert isinstance(again.result, Reply)
    assert (first.result.cached, again.result.cached) == (False, True)
    assert torch.equal(again.result.outputs[0].value, torch.ones(4))  # type: ignore[arg-type]
    assert (desk.outcome("miss"), desk.outcome("hit")) == (1, 1)


def test_equal_requests_at_the_same_time_are_computed_once() -> None:
    desk = Desk()
    clients = [desk.send() for _ in range(4)]
    other = desk.send(b"other")
    assert len(desk.running) == 2
    desk.running[0].done(reply())
    assert all(isinstance(client.result, Reply) for client in clients)
    assert other.results == []
    assert desk.outcome("follow") == 3


def test_when_the_leader_fails_the_next_takes_over_and_nobody_else_fails() -> None:
    desk = Desk()
    clients = [desk.send(deadline=time.monotonic() + n) for n in range(3)]
    desk.running[0].done(DeadlineExceededError("late"))
    assert isinstance(clients[0].result, DeadlineExceededError)
    assert desk.running[1].deadline == clients[1].deadline, "with its own deadline"
    desk.running[1].done(reply())
    assert isinstance(clients[1].result, Reply)
    assert isinstance(clients[2].result, Reply)


@pytest.mark.parametrize("kind", [ProgramFailedError, InvalidRequestError])
def test_a_program_that_fails_twice_on_the_same_inputs_has_failed_for_all(kind: type[RequestError]) -> None:
    desk = Desk()
    clients = [desk.send() for _ in range(5)]
    desk.running[0].done(kind("poison"))
    assert len(desk.running) == 2
    desk.running[1].done(kind("poison"))
    assert len(desk.running) == 2
    assert all(isinstance(client.result, kind) for client in clients)
    desk.send()
    assert len(desk.running) == 3, "an error is not kept"


def test_a_leader_whose_client_leaves_is_computed_as_long_as_somebody_follows() -> None:
    desk = Desk()
    leader, follower = desk.send(), desk.send()
    leader.left = True
    assert not desk.running[0].gone()
    desk.running[0].done(reply())
    assert leader.result is None
    assert isinstance(follower.result, Reply)
    alone = desk.send(b"other")
    alone.left = True
    assert desk.running[1].gone()


def test_when_all_have_left_nothing_is_computed_any_more() -> None:
    desk = Desk()
    clients = [desk.send() for _ in range(3)]
    for client in clients:
        client.left = True
    assert desk.running[0].gone()
    desk.running[0].done(None)
    assert [client.result for client in clients] == [None] * 3
    assert len(desk.running) == 1
    desk.send()
    assert len(desk.running) == 2


def test_who_must_start_earlier_than_the_leader_or_is_preferred_to_it_is_computed_on_its_own() -> None:
    desk, now = Desk(), time.monotonic()
    leads, earlier = now + 50.0, now + 40.0
    desk.send(deadline=leads)
    hurried = desk.send(deadline=earlier)
    preferred = desk.send(deadline=leads, priority=Priority.HIGH)
    assert [call.deadline for call in desk.running] == [leads, earlier, leads]
    assert desk.running[2].priority is Priority.HIGH
    desk.running[1].done(reply())
    desk.running[2].done(DeadlineExceededError("late"))
    desk.running[0].done(reply())
    assert desk.value("headway_cache_bytes") == ENTRY_BYTES + 16, "kept once"
    assert isinstance(hurried.result, Reply)
    assert isinstance(preferred.result, DeadlineExceededError)
    assert isinstance(desk.send().result, Reply), "what it got is kept"


def test_equal_timeouts_that_did_not_begin_in_order_still_share() -> None:
    desk, now = Desk(), time.monotonic()
    desk.send(deadline=now + 2.0)
    desk.send(deadline=now + 1.98)
    assert len(desk.running) == 1
    desk.send(deadline=now - 1)
    assert len(desk.running) == 2


def test_a_full_line_refuses_each_for_itself() -> None:
    desk = Desk(refuse=QueueFullError("full", retry_after=1))
    refused = desk.send()
    assert isinstance(refused.result, QueueFullError)
    desk.refuse = None
    followed = [desk.send(), desk.send(), desk.send()]
    desk.refuse = QueueFullError("full", retry_after=1)
    desk.running[0].done(DeadlineExceededError("late"))
    assert [type(client.result) for client in followed] == [DeadlineExceededError, QueueFullError, QueueFullError]


def test_thousands_who_are_refused_at_once_do_not_nest() -> None:
    desk = Desk()
    clients = [desk.send() for _ in range(5000)]
    leader, desk.running = desk.running[0], []
    desk.compute = lambda call: call.done(DeadlineExceededError("late"))  # type: ignore[method-assign]
    desk.cache._flights[b"k"].compute = lambda call: call.done(DeadlineExceededError("late"))
    leader.done(DeadlineExceededError("late"))
    assert all(isinstance(client.result, DeadlineExceededError) for client in clients)


def test_an_unexpected_error_fails_one_and_leaves_the_cache_in_order() -> None:
    desk = Desk()

    def broken(_: Call) -> None:
        raise ZeroDivisionError

    client = Client()
    desk.cache.answer(b"k", client.call(), broken)
    assert "ZeroDivisionError" in str(client.result)
    desk.send()
    assert len(desk.running) == 1


def test_one_callers_trouble_with_its_reply_is_not_the_others() -> None:
    desk = Desk()

    def trouble(_: Result) -> None:
        raise ConnectionError

    desk.send()
    desk.cache.answer(b"k", Call(1e9, lambda: False, trouble), desk.compute)
    last = desk.send()
    desk.running[0].done(reply())
    assert isinstance(last.result, Reply)


def test_the_least_recently_used_make_room() -> None:
    each = ENTRY_BYTES + 16
    desk = Desk(size=2 * each)
    for key in (b"a", b"b"):
        desk.send(key)
        desk.running[-1].done(reply())
    assert isinstance(desk.send(b"a").result, Reply)
    desk.send(b"c")
    desk.running[-1].done(reply())
    assert isinstance(desk.send(b"a").result, Reply)
    assert desk.send(b"b").results == []
    assert desk.value("headway_cache_evictions_total") == 1
    assert (desk.value("headway_cache_bytes"), desk.value("headway_cache_entries")) == (2 * each, 2)


def test_the_bound_can_shrink_to_nothing_while_it_serves() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.running[0].done(reply())
    flying = desk.send(b"b")
    desk.cache.resize(0)
    assert not desk.cache.enabled
    desk.running[1].done(reply())
    assert isinstance(flying.result, Reply)
    assert desk.value("headway_cache_bytes") == 0


def test_one_answer_too_large_for_all_is_not_kept_and_drives_nothing_out() -> None:
    desk = Desk(size=ENTRY_BYTES + 16)
    desk.send(b"small")
    desk.running[0].done(reply())
    desk.send(b"large")
    desk.running[1].done(reply(elements=1000))
    assert isinstance(desk.send(b"small").result, Reply)


def test_a_row_that_is_kept_does_not_keep_its_whole_run() -> None:
    desk = Desk()
    desk.send()
    run = torch.zeros(1000, 4)
    desk.running[0].done(Reply((Output("y", "FP32", run[3:4]),)))
    kept = desk.send().result
    assert isinstance(kept, Reply)
    assert kept.outputs[0].value.untyped_storage().nbytes() == 16  # type: ignore[union-attr]


def test_after_clearing_nothing_older_is_given_not_even_what_was_in_flight() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.running[0].done(reply())
    flying = desk.send(b"b")
    desk.cache.clear()
    desk.running[1].done(reply())
    assert isinstance(flying.result, Reply)
    assert desk.send(b"a").results == desk.send(b"b").results == []


IDS = torch.tensor([[1, 2, 3]])
DIFFERENT = [
    Given({"ids": IDS}),
    Given({"mask": IDS}),
    Given({"ids": IDS.reshape(3, 1)}),
    Given({"ids": IDS.to(torch.int32)}),
    Given({"ids": torch.tensor([[1, 2, 4]])}),
    Given({"ids": IDS, "mask": IDS}),
    Given({"ids": IDS}, outputs=("a",)),
    Given({"ids": IDS}, outputs=("a", "b")),
    Given({"ids": IDS}, classes={"a": 3}),
    Given({"ids": BytesArray((2,), (b"ab", b"c"))}),
    Given({"ids": BytesArray((2,), (b"a", b"bc"))}),
    Given({"ids": BytesArray((2, 1), (b"a", b"bc"))}),
    Given({"ids": torch.zeros(0)}),
    Given({"ids": torch.zeros(2, 0)}),
    Given({"ids": torch.tensor(True)}),
    Given({"ids": torch.tensor([0.5], dtype=torch.bfloat16)}),
    Given({"ids": torch.tensor([0.5], dtype=torch.float16)}),
]


def test_requests_that_differ_in_anything_have_different_keys() -> None:
    assert len({key_of(given) for given in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("given", DIFFERENT)
def test_equal_requests_have_equal_keys_whatever_their_memory_and_order(given: Given) -> None:
    def copied(value: torch.Tensor | BytesArray) -> torch.Tensor | BytesArray:
        if isinstance(value, BytesArray) or not value.ndim:
            return value
        return torch.stack([value, value], dim=-1)[..., 0]  # not contiguous

    inputs = {name: copied(value) for name, value in reversed(list(given.inputs.items()))}
    assert key_of(Given(inputs, given.outputs, dict(given.classes))) == key_of(given)


ACTS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 3), st.sampled_from(Priority)),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["reply", "late", "poison", "gone"])),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("resize"), st.sampled_from([1, 2, 5])),
)
ENDS: dict[str, Callable[[], Result]] = {
    "reply": reply,
    "late": lambda: DeadlineExceededError("late"),
    "poison": lambda: ProgramFailedError("poison"),
    "gone": lambda: None,
}


@settings(max_examples=300, deadline=None)
@given(st.lists(ACTS, max_size=50))
def test_over_any_history_each_call_gets_one_result_and_the_bound_holds(acts: list[tuple[object, ...]]) -> None:
    metrics, entry = Metrics(), ENTRY_BYTES + 16
    cache, running, clients, size = ResponseCache(2 * entry, metrics), [], [], 2
    for kind, *arguments in acts:
        if kind == "send":
            key, deadline, priority = arguments
            client = Client(time.monotonic() + 10 * deadline, priority)  # type: ignore[operator, arg-type]
            clients.append(client)
            cache.answer(key, client.call(), running.append)  # type: ignore[arg-type]
        elif kind == "end" and running:
            call = running.pop(arguments[0] % len(running))  # type: ignore[operator]
            end = "gone" if call.gone() else str(arguments[1])
            call.done(ENDS[end if end != "gone" or call.gone() else "reply"]())
        elif kind == "leave" and clients:
            clients[arguments[0] % len(clients)].left = True  # type: ignore[operator]
        elif kind == "resize":
            (size,) = arguments  # type: ignore[assignment]
            cache.resize(size * entry)
        held = metrics.registry.get_sample_value("headway_cache_bytes") or 0
        assert held <= size * entry
    while running:
        running.pop().done(reply())
    assert Counter(len(client.results) for client in clients) == Counter({1: len(clients)} if clients else {})
    for client in clients:
        assert client.result is not None or client.left
    assert not cache._flights
