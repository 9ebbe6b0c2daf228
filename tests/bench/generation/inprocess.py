"""An engine in this process, without a pod, in a time that is the CPU time of the process.

What else a machine does takes no CPU time of ours, so that waiting and speed can be measured beside others; where
nothing runs, the clock is put forward to the next request. One compute thread: the engine's own.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from headway_api.types import Precision
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generation.engine import Engine
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import Generate, Piece, Sampling, Stream, Usage
from headway_runtime.prepare import repack
from headway_runtime.program.decoder import Decoder, open_decoder
from tokenizers import Tokenizer

from tests.bench.generation.workload import Question

FOREVER = float("inf")
_GREEDY = Sampling(temperature=0)


class Clock:
    """Seconds of CPU time of this process since it was made, and what was skipped."""

    def __init__(self) -> None:
        self._offset = -time.process_time()

    def now(self) -> float:
        return time.process_time() + self._offset

    def skip_to(self, when: float) -> None:
        """Nothing happens before."""
        self._offset += max(0.0, when - self.now())


@dataclass(slots=True)
class Answer:
    """To one question: its tokens; seconds at which it was due, began, and was complete. `wanted`: tokens of it that
    somebody waits for; a batch may make more.
    """

    question: Question
    wanted: int
    tokens: list[int] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A whole run. `seconds`: of the clock."""

    answers: Sequence[Answer]
    records: Sequence[StepRecord]
    seconds: float

    @property
    def rate(self) -> float:
        """Wanted tokens of answers per second."""
        return sum(answer.wanted for answer in self.answers) / self.seconds

    def waited(self) -> list[float]:
        """Seconds to the first token, of each."""
        return [answer.first - answer.question.due for answer in self.answers]


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded decoder and its tokenizer."""

    decoder: Decoder
    tokenizer: Tokenizer

    def run(
        self,
        questions: Sequence[Question],
        settings: Settings,
        *,
        static: bool = False,
        padded: bool = False,
        draft: Decoder | None = None,
        ends: frozenset[int] = frozenset(),
        each_step: Callable[[Engine], None] | None = None,
    ) -> Ran:
        """Ask all, each when it is due. `static`: nobody joins a batch that runs; `padded`: and all of it runs as long
        as its longest answer. `ends`: tokens that end an answer.
        """
        return _Run(self, questions, settings, static, padded, draft, ends, each_step).run()


def opened(
    prepared: Path, *, blocks: int, precision: Precision = Precision.EXPORTED, program: str | None = None
) -> Bench:
    """Load a prepared decoder, with a cache in float32."""
    torch.set_num_threads(1)
    decoder = open_decoder(prepared, program, blocks=blocks, cache_dtype=torch.float32, precision=precision)
    return Bench(decoder, Tokenizer.from_file(str(prepared / repack.TOKENIZER)))


class _Run:
    def __init__(
        self,
        bench: Bench,
        questions: Sequence[Question],
        settings: Settings,
        static: bool,
        padded: bool,
        draft: Decoder | None,
        ends: frozenset[int],
        each_step: Callable[[Engine], None] | None,
    ) -> None:
        sampler = Sampler(bench.decoder.geometry.vocabulary)
        self._engine = Engine(bench.decoder, sampler, bench.tokenizer, settings, self._deliver, draft=draft)
        self._answers = [Answer(question, question.answer) for question in questions]
        self._todo = sorted(self._answers, key=lambda answer: answer.question.due, reverse=True)
        self._slots = settings.max_sequences
        self._static, self._padded, self._ends, self._each_step = static, padded, ends, each_step
        self._records: list[StepRecord] = []
        self._clock = Clock()

    def run(self) -> Ran:
        self._submit()
        self._engine.run()
        begin = min(answer.question.due for answer in self._answers)
        return Ran(self._answers, self._records, max(answer.last for answer in self._answers) - begin)

    def _deliver(self, deliveries: Sequence[Delivery], record: StepRecord | None) -> None:
        for delivery in deliveries:
            delivery.hand_over()
        if record is not None:
            self._records.append(record)
        if self._each_step is not None:
            self._each_step(self._engine)
        self._submit()

    def _submit(self) -> None:
        """What is due. On the engine's thread, between two steps."""
        if not self._engine.unfinished:
            if not self._todo:
                self._engine.stop()
                return
            self._clock.skip_to(self._todo[-1].question.due)
        elif self._static:
            return
        batch = []
        while self._todo and self._todo[-1].question.due <= self._clock.now():
            if self._static and len(batch) == self._slots:
                break
            batch.append(self._todo.pop())
        longest = max((answer.wanted for answer in batch), default=0)
        for answer in batch:
            self._ask(answer, longest if self._padded else answer.wanted)

    def _ask(self, answer: Answer, tokens: int) -> None:
        def pieces(made: tuple[Piece, ...]) -> None:
            answer.first = answer.first or self._clock.now()
            answer.tokens += [token for piece in made for token in piece.tokens]
            if not answer.last and len(answer.tokens) >= answer.wanted:
                answer.last = self._clock.now()

        def ended(outcome: object) -> None:
            if not isinstance(outcome, Usage):
                raise RuntimeError(f"an answer failed: {outcome}")
            answer.usage = outcome
            answer.last = answer.last or self._clock.now()

        generate = Generate(answer.question.prompt, tokens, _GREEDY, stop_tokens=self._ends)
        self._engine.submit(generate, Stream(FOREVER, FOREVER, pieces, ended))
