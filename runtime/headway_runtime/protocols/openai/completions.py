"""POST /v1/completions: from its body to a question. Pure."""

from typing import Any

from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import Tokens
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields
from headway_runtime.protocols.openai.formats import FORMATS, constraint_of
from headway_runtime.protocols.openai.question import Question
from headway_runtime.protocols.openai.sampling import (
    IGNORED,
    MAX_TOKENS,
    MAX_TOP,
    SAMPLING,
    STREAMING,
    generate_of,
    is_token,
    streaming,
)

PATH = "/v1/completions"
MAX_PROMPTS = 128
MAX_CHOICES = 512
USUAL_TOKENS = 16  # as OpenAI has it
KNOWN = SAMPLING | STREAMING | IGNORED | FORMATS | {"model", "prompt", "best_of", "echo", "logprobs", "max_tokens"}
REFUSED = {
    "suffix": "text that comes after the answer is not served",
    "messages": "is of /v1/chat/completions; this route takes 'prompt'",
    "max_completion_tokens": "is of /v1/chat/completions; this route takes 'max_tokens'",
}


def read(document: dict[str, Any], facts: Facts) -> Question:
    """Raises ParameterError."""
    fields = Fields(document)
    fields.only(KNOWN, REFUSED)
    max_tokens = fields.integer("max_tokens", 1, MAX_TOKENS)
    logprobs = fields.integer("logprobs", 0, MAX_TOP)
    stream, include_usage = streaming(fields)
    echo = fields.boolean("echo")
    if echo and stream and logprobs is not None:
        raise ParameterError("logprobs", "of the prompt (echo) are not streamed; set 'stream' to false")
    generate = generate_of(
        fields,
        facts,
        constraint=constraint_of(fields),
        logprobs=logprobs,
        max_tokens=USUAL_TOKENS if max_tokens is None else max_tokens,
    )
    best_of = fields.integer("best_of", 1, 128)
    if best_of not in (None, generate.n):
        raise ParameterError("best_of", f"{best_of} is not n ({generate.n}): answers are not ranked here")
    prompts = _prompts(fields, facts)
    if len(prompts) * generate.n > MAX_CHOICES:
        raise ParameterError(
            "n", f"{generate.n} answers to {len(prompts)} prompts; at most {MAX_CHOICES} in one request"
        )
    return Question(
        prompts=prompts,
        generate=generate,
        max_tokens=max_tokens,
        stream=stream,
        include_usage=include_usage,
        echo=echo,
    )


def _prompts(fields: Fields, facts: Facts) -> tuple[str | Tokens, ...]:
    given = fields.raw("prompt")
    if given is None:
        raise ParameterError("prompt", "is not given: a text, a list of texts, tokens of a text, or a list of those")
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        given = [given]
    if not isinstance(given, list) or not given:
        raise fields.error("prompt", "a text, a list of texts, tokens of a text, or a list of those")
    if len(given) > MAX_PROMPTS:
        raise ParameterError("prompt", f"has {len(given)} prompts; at most {MAX_PROMPTS} in one request")
    return tuple(_prompt(each, at, facts) for at, each in enumerate(given))


def _prompt(given: object, at: int, facts: Facts) -> str | Tokens:
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given or not all(is_token(each, facts.vocabulary) for each in given):
        raise ParameterError(
            "prompt", f"prompt {at} must be a text, or token ids from 0 to {facts.vocabulary - 1}, at least one"
        )
    return tuple(given)
