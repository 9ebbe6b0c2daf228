"""The batcher without its thread: scheduler, stepper and settling, one step at a time, in a time of the test's own."""

import random
from collections import Counter
from dataclasses import dataclass, field

import torch
from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import RequestError
from headway_runtime.generation.delivery import StepRecord
from headway_runtime.generation.drafting import DraftProgram, Lookup
from headway_runtime.generation.line import Refusal
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.scheduler import LOGITS, Scheduler
from headway_runtime.generation.sequence import Request, State, blocks_for
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.settling import Settling
from headway_runtime.generation.step import Step
from headway_runtime.generation.stepper import Stepper
from headway_runtime.generation.values import FinishReason, Generate, Piece, Sampling, Stream, TokenLogprob, Usage
from headway_runtime.prepare.decoder import BLOCK_TOKENS

from tests.unit.generation_fakes import VOCABULARY, FakeDecoder, tokenizer

FOREVER = float("inf")
GREEDY = Sampling(temperature=0)
_TOKENIZER = tokenizer()


@dataclass
class Client:
    """Who reads a stream."""

    request: Request | None = None
    pieces: list[Piece] = field(default_factory=list)
    ended: list[Usage | RequestError | None] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # of each piece

    def tokens(self, index: int = 0) -> tuple[int, ...]:
        return tuple(token for piece in self.pieces if piece.index == index for token in piece.tokens)

    def text(self, index: int = 0) -> str:
        return "".join(piece.text for piece in self.pieces if piece.index == index)

    def logprobs(self, index: int = 0) -> tuple[TokenLogprob, ...]:
        return tuple(each for piece in self.pieces if piece.index == index for each in piece.logprobs)

    def finish(self, index: int = 0) -> FinishReason | None:
        reasons = [piece.finish for piece in self.pieces if piece.index == index and piece.finish]
        assert len(reasons) <= 1
        return reasons[0] if reasons else None

    @property
    def usage(self) -> Usage:
        assert len(self.ended) == 1, self.ended
        assert isinstance(self.ended[0], Usage), self.ended
        return self.ended[0]


def ask(prompt: tuple[int, ...], max_tokens: int = 8, **more: object) -> Generate:
    return Generate(prompt, max_tokens, **{"sampling": GREEDY, **more})  # type: ignore[arg-type]


class Desk:
    """Every step is checked: blocks, budget, who has what."""

    def __init__(self, *, blocks: int = 64, draft: FakeDecoder | None = None, **settings: object) -> None:
        self.decoder = FakeDecoder(blocks)
        self.settings = Settings(**{"max_length": 512, **settings})  # type: ignore[arg-type]
        self.scheduler = Scheduler(blocks, self.settings)
        sampler = Sampler(VOCABULARY)
        proposer = None
        if self.settings.drafts:
            proposer = Lookup() if draft is None else DraftProgram(draft, sampler)
        self.stepper = Stepper(self.decoder, sampler, _TOKENIZER, proposer)
        self.records: list[StepRecord] = []
        self.now = 0.0
        self._requests = 0

    def submit(
        self,
        generate: Generate,
        *,
        priority: Priority = Priority.NORMAL,
        deadline: float = FOREVER,
        first_by: float = FOREVER,
    ) -> Client:
        client = Client()
        refused = self.offer(generate, client, priority=priority, deadline=deadline, first_by=first_by)
        assert refused is None, refused
        return client

    def offer(
        self,
        generate: Generate,
        client: Client,
        *,
        priority: Priority = Priority.NORMAL,
        deadline: float = FOREVER,
        first_by: float = FOREVER,
    ) -> Refusal | None:
        def pieces(made: tuple[Piece, ...]) -> None:
            assert not client.ended
            client.pieces += made
            client.at += [self.now] * len(made)

        stream = Stream(deadline, first_by, pieces, client.ended.append, priority)
        self._requests += 1
        client.request = Request(self._requests, generate, stream, self.now)
        if not self.scheduler.settings.prefix_cache:
            client.request.salt = self._requests.to_bytes(8, "big")
        return self.scheduler.add(client.request)

    def step(self, seconds: float = 1.0) -> Step:
        """One step, which takes so long."""
        step = self.scheduler.plan()
        self._check_plan(step)
        began = self.now
        with torch.inference_mode():
            outcome = self.stepper.run(step)
        self.now += seconds
        settling = Settling(self.scheduler, self.now)
        deliveries = settling.settle(outcome)
        for request in settling.ended:
            self.stepper.forget(request)
        self.records.append(settling.record(step, began))
        for delivery in deliveries:
            if delivery.pieces:
                delivery.stream.pieces(delivery.pieces)
            if delivery.ended:
                delivery.stream.ended(delivery.outcome)
        self.check_blocks()
        return step

    def run(self, most: int = 10_000) -> int:
        """Steps until nothing is left to do."""
        steps = 0
        while self.scheduler.requests:
            assert steps < most, "it does not come to an end"
            assert self.step().works, "requests are left, and nothing runs"
            steps += 1
        assert self.scheduler.pool.available == self.scheduler.pool.total
        assert not self.stepper._answers
        return steps

    def check_blocks(self) -> None:
        """Every block is had by as many as it says, and by several only if they are equal up to its end."""
        pool = self.scheduler.pool
        running = self.scheduler.running
        counted = Counter(block for sequence in running for block in sequence.blocks)
        assert all(pool.uses(block) == counted[block] for block in range(pool.total + 1))
        assert pool.available == pool.total - len(counted)
        assert 0 not in counted
        contents: dict[int, tuple[int, ...]] = {}
        for sequence in running:
            assert sequence.state is State.RUNNING
            assert len(set(sequence.blocks)) == len(sequence.blocks)
            assert blocks_for(sequence.computed) <= len(sequence.blocks)
            for number, block in enumerate(sequence.blocks):
                if counted[block] > 1:
                    upto = (number + 1) * BLOCK_TOKENS
                    assert upto <= sequence.computed
                    mine = tuple(sequence.tokens[:upto])
                    assert contents.setdefault(block, mine) == mine
        assert all(not sequence.blocks for sequence in self.scheduler.line)

    def _check_plan(self, step: Step) -> None:
        settings = self.scheduler.settings
        rows = sum(work.count + work.room for work in step.works)
        answers = sum(work.count == 1 for work in step.works)
        assert rows <= max(settings.step_tokens, answers + 1)
        logits = sum(work.logits + work.room for work in step.works)
        assert logits <= max(LOGITS, settings.max_sequences) + 1
        ran = {work.sequence.id for work in step.works}
        assert len(ran) == len(step.works)
        assert not self.scheduler.running or self.scheduler.running[0].id in ran, "the first in line always goes on"


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Tokens, of each seed others."""
    return tuple(random.Random(seed * 1000 + length).choices(range(1, 61), k=length))


def rows(step: Step) -> dict[int, int]:
    """Rows of each request."""
    return {work.sequence.request.id: work.rows for work in step.works}


def running(client: Client) -> bool:
    """Whether a step may hold one of its sequences."""
    assert client.request is not None
    return client.request.running
