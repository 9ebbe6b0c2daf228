"""POST /v1/chat/completions: from its body to a question. Pure."""

from typing import Any

import orjson

from headway_runtime.generation.facts import Facts
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields, shown
from headway_runtime.protocols.openai.formats import FORMATS, constraint_of
from headway_runtime.protocols.openai.question import Chat, Question
from headway_runtime.protocols.openai.sampling import (
    IGNORED,
    MAX_TOKENS,
    MAX_TOP,
    SAMPLING,
    STREAMING,
    generate_of,
    streaming,
)
from headway_runtime.protocols.openai.tools import TOOLS, tools_of

PATH = "/v1/chat/completions"
MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")
_TEMPLATE = ("chat_template_kwargs", "add_generation_prompt", "continue_final_message", "reasoning_effort")
KNOWN = frozenset(
    {
        *(SAMPLING | STREAMING | IGNORED | FORMATS | TOOLS),
        *("model", "messages", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "modalities"),
        *_TEMPLATE,
    }
)
REFUSED = {
    "prompt": "is of /v1/completions; this route takes 'messages'",
    "functions": "is not read any more; use 'tools'",
    "function_call": "is not read any more; use 'tool_choice'",
    "audio": "is not made by this model",
    "web_search_options": "nothing is searched here",
    "moderation": "nothing is moderated here",
    "verbosity": "is not honoured; say it in a message",
    "chat_template": "is the artifact's; give it variables by 'chat_template_kwargs'",
}
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


def read(document: dict[str, Any], facts: Facts) -> Question:
    """Raises ParameterError."""
    fields = Fields(document)
    fields.only(KNOWN, REFUSED)
    if fields.raw("modalities") not in (None, ["text"]):
        raise fields.error("modalities", '["text"]: this model makes no other')
    max_tokens = _max_tokens(fields)
    stream, include_usage = streaming(fields)
    asked = tools_of(fields, facts.decoder.chat_template or "")
    constraint = constraint_of(fields)
    if constraint is not None and asked.constraint is not None:
        raise ParameterError(
            "tool_choice", "demands a call, and the format of the answer is ruled too; give one of them"
        )
    generate = generate_of(
        fields, facts, constraint=asked.constraint or constraint, logprobs=_logprobs(fields), max_tokens=max_tokens
    )
    opens, continues = fields.boolean("add_generation_prompt", True), fields.boolean("continue_final_message")
    if continues:
        raise ParameterError("continue_final_message", "is not served; use /v1/completions with a prompt of your own")
    return Question(
        prompts=(Chat(_messages(fields), asked.shown, _variables(fields), opens_answer=opens),),
        generate=generate,
        max_tokens=max_tokens,
        stream=stream,
        include_usage=include_usage,
        calls=asked.form,
        tool=asked.name,
    )


def _max_tokens(fields: Fields) -> int | None:
    newer = fields.integer("max_completion_tokens", 1, MAX_TOKENS)
    older = fields.integer("max_tokens", 1, MAX_TOKENS)
    if newer is not None and older is not None and newer != older:
        raise ParameterError("max_tokens", f"{older} is not max_completion_tokens ({newer}); give one of them")
    return older if newer is None else newer


def _logprobs(fields: Fields) -> int | None:
    top = fields.integer("top_logprobs", 0, MAX_TOP)
    if fields.boolean("logprobs"):
        return top or 0
    if top:
        raise ParameterError("top_logprobs", "needs 'logprobs': true")
    return None


def _variables(fields: Fields) -> dict[str, Any]:
    given = fields.object("chat_template_kwargs")
    found = {} if given is None else given.as_dict()
    if taken := sorted(_RESERVED & found.keys()):
        raise ParameterError(f"chat_template_kwargs.{taken[0]}", "is the route's own; use its field of the body")
    effort = fields.text("reasoning_effort")
    return found if effort is None else {"reasoning_effort": effort, **found}


def _messages(fields: Fields) -> tuple[dict[str, Any], ...]:
    given = fields.list("messages")
    if given is None:
        raise ParameterError("messages", "is not given: a list of messages, each with a role and its content")
    if not 0 < len(given) <= MAX_MESSAGES:
        raise ParameterError("messages", f"has {len(given)} messages; from 1 to {MAX_MESSAGES} are taken")
    return tuple(_message(each, f"messages.{at}") for at, each in enumerate(given))


def _message(given: object, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ParameterError(path, "must be an object with a role and its content")
    fields = Fields(given, path)
    role = fields.raw("role")
    if role not in ROLES:
        raise fields.error("role", f"one of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    if (name := fields.text("name")) is not None:
        message["name"] = name
    if role == "assistant" and (thought := fields.text("reasoning_content")) is not None:
        message["reasoning_content"] = thought
    calls = _past_calls(fields) if role == "assistant" else []
    if calls:
        message["tool_calls"] = calls
    if role == "tool" and (call := fields.text("tool_call_id")) is not None:
        message["tool_call_id"] = call
    message["content"] = _content(fields, may_lack=bool(calls))
    return message


def _content(fields: Fields, *, may_lack: bool) -> str:
    given = fields.raw("content")
    if isinstance(given, str):
        return given
    if given is None and may_lack:
        return ""
    if not isinstance(given, list) or not given:
        raise fields.error("content", "a text, or a list of parts of type text")
    return "".join(_part(each, f"{fields.at('content')}.{at}") for at, each in enumerate(given))


def _part(given: object, path: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    key = {"text": "text", "refusal": "refusal"}.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise ParameterError(path, f"of type {shown(kind)} is not taken: this model reads parts of type text")
    assert isinstance(given, dict)
    text = given.get(key)
    if not isinstance(text, str):
        raise ParameterError(f"{path}.{key}", "is not a text")
    return text


def _past_calls(fields: Fields) -> list[dict[str, Any]]:
    """Calls of tools in an earlier answer; templates want their arguments as objects, OpenAI sends them as texts."""
    found = []
    for at, call in enumerate(fields.list("tool_calls") or []):
        path = f"{fields.at('tool_calls')}.{at}"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ParameterError(path, "must have a function with its name and arguments")
        arguments = function.get("arguments") or "{}"
        try:
            decoded = orjson.loads(arguments) if isinstance(arguments, str) else arguments
        except orjson.JSONDecodeError as error:
            raise ParameterError(f"{path}.function.arguments", f"is not JSON: {error}") from None
        described = {"name": function["name"], "arguments": decoded}
        found.append({"id": str(call.get("id", "")), "type": "function", "function": described})
    return found
