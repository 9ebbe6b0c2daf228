"""What is asked of a decoder, and what comes back: the words between protocols, engine, scheduler and sampler.

Plain values; no tensor, no socket, no clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import RequestError

Tokens = tuple[int, ...]


class FinishReason(StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"  # the program's end token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or no room for more


class ConstraintKind(StrEnum):
    """In what language a constraint is written."""

    JSON_OBJECT = "json_object"  # any JSON object; the text is empty
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "grammar"  # Lark's


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the whole answer must match."""

    kind: ConstraintKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The defaults leave the program's distribution as it is.

    `temperature` 0 is greedy. `top_k` 0: all. `repetition_penalty` is over prompt and answer (CTRL, 2019); `presence`
    and `frequency` over the answer (OpenAI). `logit_bias`: token -> what is added. `seed` fixes the answer whatever
    runs beside it; None: any.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    constraint: Constraint | None = None

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Generate:
    """A checked request: `n` answers to one prompt (each with a seed of its own).

    `max_tokens`: of each answer. `stop`: texts that end it and are not part of it. `stop_tokens`: those that end it,
    the program's own end tokens included unless they are to be ignored. `logprobs`: how many of the likeliest tokens
    are told beside the chosen one; None: nothing. `prompt_logprobs`: the same for the prompt (`echo`).
    """

    prompt: Tokens
    max_tokens: int
    sampling: Sampling = Sampling()
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its natural logarithm of probability, before temperature and filters, and the likeliest ones."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step adds to answer `index`. `text` never ends within a character or within a possible stop string.

    `tokens` are those made in this step, though their text may come with a later piece; `logprobs` belongs to them.
    """

    index: int
    text: str
    tokens: Tokens = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request. `cached`: of the prompt, found in the prefix cache. `drafted` and `accepted`: proposed by
    speculation. `prompt_logprobs`: None for the first token, which nothing predicts.
    """

    prompt: int
    completion: int
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """Where the pieces of one request go. Both are called on the event loop; `ended` once, and last.

    `deadline`: time.monotonic() of when an unfinished request is given up; `first_by`: of when one that was not begun
    is. `pieces` gets all that one step made. `ended` gets the usage; the error; or None when it was cancelled.
    """

    deadline: float
    first_by: float
    pieces: Callable[[tuple[Piece, ...]], None]
    ended: Callable[[Usage | RequestError | None], None]
    priority: Priority = Priority.NORMAL
