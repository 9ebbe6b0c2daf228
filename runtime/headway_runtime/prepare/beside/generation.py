"""The field ``generation`` of a record: what a decoder's program cannot say of the text that it makes.

Only data. The chat template is text of a language that could loop: it is kept as it is, and rendered in a sandbox by
who serves chats. Whether tokens are in the vocabulary is asked by ``check``, when the program is known.
"""

import math
from collections.abc import Callable
from typing import Any

from headway_runtime.prepare.beside.fields import fields, listed, real, text, typed, whole
from headway_runtime.prepare.decoder import DecoderFacts, GoldenPrompt
from headway_runtime.prepare.errors import Refusal

MAX_CONTEXT = 10_000_000
MAX_END = 256
MAX_TEMPLATE = 256 << 10
"""Bytes in UTF-8."""
MAX_PROMPTS = 256
MAX_TOKENS = 1 << 18
"""Of all golden prompts and their continuations together."""
MAX_TOKEN = (1 << 31) - 1

_BLANK = "\n\t\r"


def parse(value: Any) -> DecoderFacts:
    """Raises Refusal ``record.form``, with the JSON path of the field."""
    found = fields(value, _READERS, required=("context",))
    facts = DecoderFacts(
        context=found["context"],
        end=found.get("end", ()),
        chat_template=found.get("chatTemplate"),
        begin_text=found.get("beginText", ""),
        end_text=found.get("endText", ""),
        defaults=tuple(found.get("defaults", {}).items()),
        golden=found.get("golden", ()),
    )
    for number, golden in enumerate(facts.golden):
        if len(golden.prompt) + len(golden.tokens) > facts.context:
            detail = f"{len(golden.prompt)} + {len(golden.tokens)} tokens in a context of {facts.context}"
            raise Refusal("record.form", detail).inside(number).inside("golden")
    return facts


def check(facts: DecoderFacts, vocabulary: int) -> None:
    """Every token is one of the program's. Raises Refusal ``record.generation``."""
    for number, token in enumerate(facts.end):
        if token >= vocabulary:
            raise _beyond(token, vocabulary).inside(number).inside("end")
    for number, golden in enumerate(facts.golden):
        if (token := max(*golden.prompt, *golden.tokens)) >= vocabulary:
            raise _beyond(token, vocabulary).inside(number).inside("golden")


def _beyond(token: int, vocabulary: int) -> Refusal:
    return Refusal("record.generation", f"token {token}, and the program has a vocabulary of {vocabulary}")


def _tokens(value: Any, limit: int) -> tuple[int, ...]:
    return tuple(whole(item, 0, MAX_TOKEN) for item in listed(value, limit))


def _template(value: Any) -> str:
    found: str = typed(value, str)
    size = len(found.encode("utf-8", "surrogatepass"))
    clean = all(c in _BLANK or (ord(c) >= 32 and not 0xD800 <= ord(c) < 0xE000 and ord(c) != 127) for c in found)
    if size > MAX_TEMPLATE or not clean:
        raise Refusal("record.form", f"text of at most {MAX_TEMPLATE:,} bytes without control characters is needed")
    return found


def _golden(value: Any) -> tuple[GoldenPrompt, ...]:
    left = MAX_TOKENS
    prompts: list[GoldenPrompt] = []
    for number, item in enumerate(listed(value, MAX_PROMPTS)):
        try:
            found = fields(item, _GOLDEN, required=("prompt", "tokens"))
        except Refusal as refusal:
            raise refusal.inside(number) from None
        prompt = GoldenPrompt(found["prompt"], found["tokens"], found.get("margins", ()))
        left -= len(prompt.prompt) + len(prompt.tokens)
        if left < 0:
            raise Refusal("record.form", f"more than {MAX_TOKENS:,} tokens in all").inside(number)
        if not prompt.prompt or not prompt.tokens or len(prompt.margins) not in (0, len(prompt.tokens)):
            raise Refusal("record.form", "tokens before and after, and a margin for each of these").inside(number)
        prompts.append(prompt)
    return tuple(prompts)


_GOLDEN: dict[str, Callable[[Any], Any]] = {
    "prompt": lambda v: _tokens(v, MAX_TOKENS),
    "tokens": lambda v: _tokens(v, MAX_TOKENS),
    "margins": lambda v: tuple(real(n, 0, math.inf) for n in listed(v, MAX_TOKENS)),
}
_DEFAULTS: dict[str, Callable[[Any], Any]] = {
    "temperature": lambda v: real(v, 0, 100),
    "topK": lambda v: float(whole(v, 0, MAX_TOKEN)),
    "topP": lambda v: real(v, 0, 1),
    "minP": lambda v: real(v, 0, 1),
    "repetitionPenalty": lambda v: real(v, 0.01, 100),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "context": lambda v: whole(v, 2, MAX_CONTEXT),
    "end": lambda v: _tokens(v, MAX_END),
    "chatTemplate": _template,
    "beginText": text,
    "endText": text,
    "defaults": lambda v: fields(v, _DEFAULTS),
    "golden": _golden,
}
