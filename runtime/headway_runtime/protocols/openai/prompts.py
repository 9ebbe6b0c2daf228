"""From a question to what the engine is asked: templates are rendered, texts made tokens, constraints prepared.

A template, the patterns of a tokenizer and a schema are a stranger's, and may take their time: all of that is done in
threads beside the event loop. Only tokens that come as tokens need none.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ProgramFailedError,
    QueueFullError,
    RequestError,
    TooLargeError,
    first_line,
)
from headway_runtime.generation.chat import TemplateError, render
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import Generate, Tokens
from headway_runtime.logs import log_seldom
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.question import Chat, Question

T = TypeVar("T")

THREADS = 2
MAX_TEXT = 1 << 20  # characters of all prompts of a request
MAX_LOGPROBS = 1 << 20
"""Of a whole answer, which are kept until it is written: 150 bytes each. A stream keeps none."""
MAX_WAITING = 512  # requests whose prompts wait for a thread


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text`: where it is part of the answer."""

    generate: Generate
    text: str = ""


class PromptRoom:
    """The threads, and how many requests wait for one. On the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, "headway-prompts")
        self._waiting = 0

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do it in a thread. Raises QueueFullError."""
        if self._waiting >= MAX_WAITING:
            message = f"the prompts of {self._waiting} requests are being read; try again in 1 s"
            raise QueueFullError(message, retry_after=1)
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        future.add_done_callback(self._left)
        return future

    def _left(self, _: object) -> None:
        self._waiting -= 1


def is_at_once(question: Question) -> bool:
    """Whether nothing needs a thread."""
    return (
        question.generate.sampling.constraint is None
        and not question.echo
        and all(isinstance(prompt, tuple) for prompt in question.prompts)
    )


def prompts_of(question: Question, facts: Facts, begin_by: float, gone: Callable[[], bool]) -> list[Prompt]:
    """Of each of its prompts. In any thread. Raises RequestError."""
    if gone():
        raise RequestError("the client has gone")
    if time.monotonic() > begin_by:
        raise DeadlineExceededError("the deadline passed before its prompt was read; no model has seen it")
    generate = question.generate
    if (constraint := generate.sampling.constraint) is not None:
        if facts.constraints is None:
            raise InvalidRequestError("this model's answers cannot be made to match anything; ask without a format")
        prepared = facts.constraints.prepare(constraint)
        generate = replace(generate, sampling=replace(generate.sampling, constraint=prepared))
    prompts = [_prompt(each, replace(question, generate=generate), facts) for each in question.prompts]
    _check_logprobs(question, prompts)
    return prompts


def _prompt(given: str | Tokens | Chat, question: Question, facts: Facts) -> Prompt:
    field = "messages" if isinstance(given, Chat) else "prompt"
    text = ""
    if isinstance(given, Chat):
        tokens = _encoded(_rendered(given, facts), facts, special=False)
    elif isinstance(given, str):
        text = given
        tokens = _encoded(given, facts, special=True)
    else:
        tokens = given
    generate = _fitted(tokens, question, facts, field)
    if question.echo and not text:
        text = str(facts.tokenizer.decode(list(tokens), skip_special_tokens=False))
    return Prompt(generate, text)


def _rendered(chat: Chat, facts: Facts) -> str:
    template = facts.decoder.chat_template
    if template is None:
        raise InvalidRequestError("this model's artifact has no chat template; ask it by POST /v1/completions")
    try:
        return render(
            facts.decoder,
            list(chat.messages),
            tools=list(chat.tools) or None,
            add_generation_prompt=chat.opens_answer,
            variables=dict(chat.variables),
        )
    except TemplateError as error:
        raise ParameterError("messages", f"the model's chat template does not take them: {error}") from None


def _encoded(text: str, facts: Facts, *, special: bool) -> Tokens:
    if len(text) > MAX_TEXT:
        raise TooLargeError(f"a prompt of {len(text)} characters; at most {MAX_TEXT} are tokenized")
    try:
        # `encode` would hold the interpreter, and with it the whole pod, for seconds: of the library's ways to encode,
        # only those that take several texts let other threads run
        (found,) = facts.tokenizer.encode_batch_fast([text], add_special_tokens=special)
        return tuple(found.ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust code is no Exception
        log_seldom("step_failed", step="prompt", error_type=type(error).__name__)
        raise ProgramFailedError(f"the prompt could not be tokenized: {first_line(error, 300)}") from None


def _fitted(tokens: Tokens, question: Question, facts: Facts, field: str) -> Generate:
    """With as many tokens of an answer as are asked for, or as there is room for. Raises ParameterError."""
    most, length, wanted = facts.max_length, len(tokens), question.max_tokens
    if not length:
        raise ParameterError(field, "is empty: at least one token is needed to go on from")
    if length >= most or length + (wanted or 0) > most:
        asked = f"{length} in the {field}" + ("" if wanted is None else f", {wanted} in the completion")
        shorten = field if wanted is None or length >= most else f"{field} or the completion"
        message = (
            f"This model's maximum context length is {most} tokens. You asked for more: {asked}. Shorten the {shorten}"
        )
        raise ParameterError(field, message, code="context_length_exceeded")
    room = most - length
    made = min(question.generate.max_tokens or room, room)
    least = min(question.generate.min_tokens, made)
    told = question.generate.logprobs if question.echo else None
    return replace(question.generate, prompt=tokens, max_tokens=made, min_tokens=least, prompt_logprobs=told)


def _check_logprobs(question: Question, prompts: list[Prompt]) -> None:
    """Raises ParameterError for more than are kept."""
    top = question.generate.logprobs
    if top is None or question.stream:
        return
    tokens = sum(this.max_tokens + (len(this.prompt) if question.echo else 0) for this in (p.generate for p in prompts))
    if (kept := tokens * question.generate.n * (1 + top)) > MAX_LOGPROBS:
        message = f"{kept} of them may be told, and a whole answer keeps at most {MAX_LOGPROBS}"
        raise ParameterError("logprobs", f"{message}: lower max_tokens, n or their number, or set 'stream' to true")
