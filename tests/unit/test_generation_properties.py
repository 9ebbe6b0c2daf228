"""The batcher over random histories: nothing that happens beside a request changes its answer, and everything ends."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from headway_runtime.batching.tickets import Priority
from headway_runtime.generation.values import Generate, Sampling, Usage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.generation_desk import Client, Desk, ask
from tests.unit.generation_fakes import VOCABULARY, FakeDecoder

CONTEXT = 200
RUNS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def repetitive(numbers: list[int], logits: np.ndarray) -> np.ndarray:
    """Often one of three tokens, so that what follows is often what followed before."""
    likely = 1 + numbers[-1] % 3
    raised = logits.copy()
    raised[likely] += 6
    return raised


def mistaken(numbers: list[int], logits: np.ndarray) -> np.ndarray:
    """As `repetitive`, but wrong now and then: a draft program."""
    return repetitive(numbers, logits) if numbers[-1] % 5 else -logits


_ALONE: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {}


def alone(generate: Generate) -> tuple[tuple[tuple[int, ...], str], ...]:
    """What each answer is when nothing else runs, in one go, with nothing clever."""
    key = repr(generate)
    if key not in _ALONE:
        desk = Desk(blocks=64, max_length=CONTEXT, prefix_cache=False, step_tokens=1024)
        desk.decoder.odd = repetitive
        client = desk.submit(generate)
        desk.run()
        _ALONE[key] = tuple((client.tokens(index), client.text(index)) for index in range(generate.n))
        if generate.sampling.greedy:
            assert len(set(_ALONE[key])) == 1
    return _ALONE[key]


COMMON = tuple(7 * number % 60 + 1 for number in range(60))
BEGINNINGS = (COMMON, (5, *COMMON[1:]))  # alike but for the first token, so that later blocks hold the same tokens


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Many begin alike."""
    shared = BEGINNINGS[draw(st.integers(0, 1))][: draw(st.sampled_from([0, 5, 16, 32, 33, 47, 48]))]
    own = draw(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=30))
    return (*shared, *own)


SAMPLINGS = st.sampled_from(
    [
        Sampling(temperature=0),
        Sampling(temperature=1.0, seed=7),
        Sampling(temperature=0.7, top_p=0.9, seed=8, frequency_penalty=0.5),
    ]
)


@st.composite
def generates(draw: st.DrawFn) -> Generate:
    return Generate(
        draw(prompts()),
        draw(st.integers(1, 60)),
        draw(SAMPLINGS),
        n=draw(st.sampled_from([1, 1, 1, 2, 3])),
        stop=draw(st.sampled_from([(), (), ("bc",), ("Az", "d")])),
        stop_tokens=draw(st.sampled_from([frozenset(), frozenset({0, 3}), frozenset(range(20, 30))])),
        min_tokens=draw(st.sampled_from([0, 0, 4])),
    )


@dataclass(frozen=True)
class Event:
    generate: Generate | None = None
    priority: Priority = Priority.NORMAL
    steps: int = 0
    cancel: int | None = None
    step_tokens: int | None = None
    prefix_cache: bool | None = None


EVENTS = st.lists(
    st.one_of(
        st.builds(Event, generate=generates(), priority=st.sampled_from(Priority)),
        st.builds(Event, generate=generates(), priority=st.sampled_from(Priority)),
        st.builds(Event, steps=st.integers(1, 12)),
        st.builds(Event, cancel=st.integers(0, 20)),
        st.builds(Event, step_tokens=st.sampled_from([1, 2, 7, 16, 64, 256])),
        st.builds(Event, prefix_cache=st.booleans()),
    ),
    max_size=25,
)


def play(desk: Desk, events: list[Event]) -> None:
    """Live through it, and see that everyone who stayed got what it would have got alone."""
    clients: list[tuple[Generate, Client]] = []
    cancelled: set[int] = set()
    for event in events:
        if event.generate is not None:
            desk.now += 0.01
            clients.append((event.generate, desk.submit(event.generate, priority=event.priority)))
        if event.cancel is not None and event.cancel < len(clients):
            request = clients[event.cancel][1].request
            assert request is not None
            if not request.ended:
                cancelled.add(event.cancel)
                desk.scheduler.drop(request)
                desk.stepper.forget(request)
        if event.step_tokens is not None:
            desk.scheduler.settings = replace(desk.scheduler.settings, step_tokens=event.step_tokens)
        if event.prefix_cache is not None:
            desk.scheduler.settings = replace(desk.scheduler.settings, prefix_cache=event.prefix_cache)
        for _ in range(event.steps):
            desk.step(0.02)
    desk.run()
    for number, (generate, client) in enumerate(clients):
        answers = alone(generate)
        for index in range(generate.n):
            tokens, text = answers[index]
            if number in cancelled:
                made = client.tokens(index)
                assert made == tokens[: len(made)]
            else:
                assert client.tokens(index) == tokens
                assert client.text(index) == text
                assert client.finish(index) is not None
        if number not in cancelled:
            assert isinstance(client.ended[0], Usage)
            assert client.usage.completion == sum(len(tokens) for tokens, _ in answers)


@RUNS
@given(
    events=EVENTS,
    blocks=st.sampled_from([14, 16, 20, 40]),
    max_sequences=st.sampled_from([1, 2, 5, 16]),
    drafts=st.sampled_from([0, 0, 3, 5]),
)
def test_answers_do_not_depend_on_what_ran_beside_them(
    events: list[Event], blocks: int, max_sequences: int, drafts: int
) -> None:
    desk = Desk(blocks=blocks, max_length=CONTEXT, max_sequences=max_sequences, step_tokens=64, drafts=drafts)
    desk.decoder.odd = repetitive
    play(desk, events)


@RUNS
@given(events=EVENTS, blocks=st.sampled_from([14, 20, 40]), drafts=st.sampled_from([1, 3, 5]))
def test_nor_on_what_a_draft_program_proposes(events: list[Event], blocks: int, drafts: int) -> None:
    draft = FakeDecoder(blocks)
    draft.odd = mistaken
    desk = Desk(blocks=blocks, draft=draft, max_length=CONTEXT, max_sequences=5, step_tokens=64, drafts=drafts)
    desk.decoder.odd = repetitive
    play(desk, events)


@RUNS
@given(
    arrivals=st.lists(
        st.tuples(st.sampled_from(Priority), st.integers(1, 60), st.integers(1, 30), st.integers(0, 4)), max_size=30
    ),
    max_sequences=st.sampled_from([1, 2, 4]),
)
def test_no_preferred_one_waits_for_a_slot_that_a_lesser_one_could_give(
    arrivals: list[tuple[Priority, int, int, int]], max_sequences: int
) -> None:
    """With blocks for all: whoever runs beside a preferred one that waits has given way before, and only once."""
    desk = Desk(blocks=400, max_length=CONTEXT, max_sequences=max_sequences)
    gave_way: Counter[int] = Counter()

    def step() -> None:
        before = {sequence.id for sequence in desk.scheduler.running}
        desk.step(0.02)
        for sequence in desk.scheduler.line:
            gave_way[sequence.id] += sequence.id in before
            stayed = [other for other in desk.scheduler.running if other.id in before]
            assert all(sequence.request.priority <= other.level for other in stayed)

    clients = []
    for number, (priority, length, tokens, steps) in enumerate(arrivals):
        clients.append(desk.submit(ask((number + 1, *range(1, length)), tokens), priority=priority))
        for _ in range(steps):
            step()
    while desk.scheduler.requests:
        step()
    assert all(client.ended for client in clients)
    assert set(gave_way.values()) <= {0, 1}


@RUNS
@given(
    low=generates(),
    flow=st.lists(generates(), min_size=1, max_size=6),
    every=st.integers(1, 6),
    blocks=st.sampled_from([14, 20, 40]),
    max_sequences=st.sampled_from([1, 2, 5]),
)
def test_an_endless_flow_of_preferred_requests_keeps_nobody_from_ending(
    low: Generate, flow: list[Generate], every: int, blocks: int, max_sequences: int
) -> None:
    desk = Desk(blocks=blocks, max_length=CONTEXT, max_sequences=max_sequences, step_tokens=64, capacity=100_000)
    desk.decoder.odd = repetitive
    client = desk.submit(low, priority=Priority.LOW)
    steps = 0
    while not client.ended:
        if steps % every == 0:
            desk.submit(flow[steps // every % len(flow)], priority=Priority.HIGH)
        desk.step(0.1)
        steps += 1
        assert steps < 2000
    assert tuple(client.tokens(index) for index in range(low.n)) == tuple(tokens for tokens, _ in alone(low))


def test_speculation_saves_steps() -> None:
    generate = ask(tuple(range(1, 40)), 100)
    steps = []
    for drafts in (0, 4):
        draft = FakeDecoder(64)
        draft.odd = mistaken
        desk = Desk(blocks=64, draft=draft, drafts=drafts)
        desk.decoder.odd = repetitive
        client = desk.submit(generate)
        steps.append(desk.run())
        assert client.tokens() == alone(generate)[0][0]
    assert steps[1] < 0.5 * steps[0]
