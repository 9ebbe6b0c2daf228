"""A request and its answers, as the scheduler sees them. Pure.

A sequence is the prompt and one answer to it. `computed` of its tokens have their keys and values in its blocks; the
others are still to run: all of a prompt at first, one in the middle of an answer, all of both after a preemption.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from headway_runtime.batching.tickets import LEVEL_SECONDS, Priority
from headway_runtime.generation.prefix import chain
from headway_runtime.generation.values import FinishReason, Generate, Stream, TokenLogprob
from headway_runtime.prepare.decoder import BLOCK_TOKENS

TOKEN_BYTES = 8


class State(Enum):
    """Where a sequence is."""

    WAITING = "waiting"  # in line
    RUNNING = "running"  # has blocks
    OUT = "out"  # has ended


@dataclass(slots=True, eq=False)
class Request:
    """What was submitted, and what has become of it. `salt` begins the keys of its blocks: see `prefix.chain`."""

    id: int
    generate: Generate
    stream: Stream
    arrived: float
    salt: bytes = b""
    begun: bool = False
    ended: bool = False
    first_token: float | None = None  # when it was made
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    sequences: list["Sequence"] = field(default_factory=list)

    @property
    def priority(self) -> Priority:
        """Of the request."""
        return self.stream.priority

    @property
    def tells_prompt(self) -> bool:
        """Whether logarithms of probability of its prompt are asked for, and not all known yet."""
        wanted = self.generate.prompt_logprobs is not None
        return wanted and len(self.prompt_logprobs) < len(self.generate.prompt)

    @property
    def give_up(self) -> float:
        """When it is answered with an error if nothing more happens."""
        return self.stream.deadline if self.begun else min(self.stream.first_by, self.stream.deadline)

    @property
    def running(self) -> bool:
        """Whether a step may hold one of its sequences."""
        return any(sequence.state is State.RUNNING for sequence in self.sequences)

    @property
    def unfinished(self) -> bool:
        """Whether an answer goes on."""
        return any(sequence.finish is None for sequence in self.sequences)


class Sequence:
    """`limit`: the tokens that it may have at most. `order`: its place in line, a virtual time of arrival.

    `blocks` hold its tokens, 16 each; the first `sealed` of them are full, and can be found by their keys.
    """

    __slots__ = (
        "acceptance",
        "blocks",
        "computed",
        "finish",
        "gave_way",
        "id",
        "index",
        "keys",
        "limit",
        "order",
        "overtaken",
        "preempted",
        "prompt",
        "request",
        "rested",
        "sealed",
        "state",
        "tokens",
    )

    def __init__(self, number: int, request: Request, index: int, *, max_length: int) -> None:
        generate = request.generate
        self.id = number
        self.request = request
        self.index = index
        self.prompt = len(generate.prompt)
        self.limit = min(max_length, self.prompt + generate.max_tokens)
        self.order = request.arrived + (Priority.HIGH - request.priority) * LEVEL_SECONDS
        self.tokens = array("q", generate.prompt)
        self.blocks = array("i")
        self.keys: list[bytes] = []
        self.computed = 0
        self.sealed = 0
        self.state = State.WAITING
        self.preempted = False  # it has run before, and must run again what it had
        self.gave_way = False  # to a preferred one, so that it gives way to no other
        self.overtaken = 0  # by how many that were behind it, because it did not fit
        self.acceptance = 0.7  # of drafts, lately: see `speculation`
        self.rested = 0  # steps since there were any
        self.finish: FinishReason | None = None

    @property
    def place(self) -> tuple[float, int]:
        """By this the line is ordered; of equals the earlier one goes first."""
        return self.order, self.id

    @property
    def level(self) -> Priority:
        """Only those above it take its blocks or its slot: its priority, or the highest once it gave way."""
        return Priority.HIGH if self.gave_way else self.request.priority

    @property
    def standing(self) -> tuple[int, float, int]:
        """By this those that run are ordered: the last one gives up its blocks first."""
        return Priority.HIGH - self.level, self.order, self.id

    @property
    def pending(self) -> int:
        """Tokens that are still to run."""
        return len(self.tokens) - self.computed

    @property
    def answer(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.prompt

    @property
    def follows(self) -> bool:
        """Whether it waits for another answer to the same prompt to run that prompt."""
        return self.index > 0 and not self.answer

    @property
    def reusable(self) -> int:
        """Blocks at its beginning that need not run if they are found: at least one token must, to go on from."""
        most = (len(self.tokens) - 1) // BLOCK_TOKENS
        request = self.request
        if request.generate.prompt_logprobs is None or self.index:
            return most
        return min(most, max(0, len(request.prompt_logprobs) - 1) // BLOCK_TOKENS)

    def key(self, number: int) -> bytes:
        """The key of a full block of its tokens."""
        if number >= len(self.keys):
            known = len(self.keys)
            self.keys.extend(chain(self.keys[-1] if known else self.request.salt, self.tokens, known))
        return self.keys[number]


def blocks_for(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)
