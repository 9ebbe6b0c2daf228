"""A conversation becomes a prompt."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from headway_runtime.errors import first_line
from headway_runtime.generation.chat.budget import Budget, spending
from headway_runtime.generation.chat.environment import ChatEnvironment
from headway_runtime.generation.chat.errors import TemplateError
from headway_runtime.prepare.decoder import DecoderFacts

MAX_TEMPLATE = 1 << 17
"""Characters of a template; published ones have up to 20,000."""
MAX_TEXT = 1 << 22
"""Characters of a prompt."""
_REASONING = ("reasoning_content", "thinking", "reasoning")


def render(
    facts: DecoderFacts,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """What transformers' `apply_chat_template` gives, by the artifact's template, with `variables` beside.

    Messages, tools and variables are of the kinds that JSON has. Takes about as long as the conversation has letters
    (10 µs for a short one), and for a template that goes on and on, a second or two. Raises TemplateError.
    """
    if facts.chat_template is None:
        raise TemplateError("this model has no chat template")
    template = _compiled(facts.chat_template)
    if isinstance(template, TemplateError):
        raise template
    given = {
        "bos_token": facts.begin_text,
        "eos_token": facts.end_text,
        "documents": None,
        **(variables or {}),
        "messages": [_message(message) for message in messages],
        "tools": None if tools is None else list(tools),
        "add_generation_prompt": add_generation_prompt,
    }
    try:
        with spending(Budget(given)):
            return _text(template, given)
    except TemplateError:
        raise
    except (Exception, RecursionError) as error:  # of any kind: it is the template's own doing
        raise TemplateError(first_line(error, 300) or type(error).__name__) from None


def _text(template: Template, given: dict[str, Any]) -> str:
    pieces, size = [], 0
    for piece in template.root_render_func(template.new_context(given)):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_TEXT:
            raise TemplateError(f"the template makes more than {MAX_TEXT} characters of these messages")
    return "".join(pieces)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As transformers gives it: without what is null, and with the reasoning under each name that templates read."""
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[name] for name in _REASONING if name in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}


@cache
def _environment() -> ChatEnvironment:
    return ChatEnvironment()


@lru_cache(maxsize=8)
def _compiled(text: str) -> Template | TemplateError:
    if len(text) > MAX_TEMPLATE:
        return TemplateError(f"the template has {len(text)} characters; at most {MAX_TEMPLATE} are taken")
    try:
        return _environment().from_string(text)
    except TemplateSyntaxError as error:
        return TemplateError(f"the template cannot be read: {error.message} (line {error.lineno})")
    except (Exception, RecursionError) as error:  # Python's compiler has limits of its own
        return TemplateError(f"the template cannot be compiled: {first_line(error, 300) or type(error).__name__}")
