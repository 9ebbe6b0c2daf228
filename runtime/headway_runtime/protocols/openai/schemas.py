"""How OpenAPI describes the two routes that answer with text."""

from typing import Any

from headway_api.names import NOT_ADMITTED_HEADER, PRIORITY_HEADER, REVISION_HEADER, TIMEOUT_HEADER

from headway_runtime.generation.facts import Facts
from headway_runtime.protocols.openai import chat, completions
from headway_runtime.protocols.openai.sampling import LEAST_PENALTY, MAX_ANSWERS, MAX_STOPS, MAX_TOP

_TEXTS = {"type": "array", "items": {"type": "string"}}
_TOKENS = {"type": "array", "items": {"type": "integer"}}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REFUSALS = {
    "400": "The field that is wrong, and what is allowed; `context_length_exceeded`.",
    "404": "`model_not_found`.",
    "413": "More than is ever read.",
    "429": "`rate_limit_exceeded`: the queue is full; `retry-after` says when to come back.",
    "500": "The program failed on this request.",
    "503": "Loading, warming or ending; no model has seen the request.",
    "504": "It did not begin, or end, in time.",
}


def text_paths(facts: Facts, model: str) -> dict[str, Any]:
    """The paths of an OpenAPI document, by path. An example stands with those that this model answers."""
    shared = _shared(facts)
    completion = {
        "model": {"type": "string"},
        "prompt": {
            "description": "A text, texts, tokens of a text, or of several.",
            "anyOf": [{"type": "string"}, _TEXTS, _TOKENS, {"type": "array", "items": _TOKENS}],
        },
        "max_tokens": _integer(1, facts.max_length, "Of each answer.", completions.USUAL_TOKENS),
        "echo": {"type": "boolean", "default": False, "description": "The prompt is part of the text."},
        "logprobs": _integer(0, MAX_TOP, "So many of the likeliest tokens are told."),
        **shared,
    }
    message = {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": list(chat.ROLES)},
            "content": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        },
    }
    talk = {
        "model": {"type": "string"},
        "messages": {"type": "array", "minItems": 1, "items": message},
        "max_completion_tokens": _integer(
            1, facts.max_length, "Of each answer; without it, all that there is room for."
        ),
        "logprobs": {"type": "boolean", "default": False},
        "top_logprobs": _integer(0, MAX_TOP, "So many of the likeliest tokens are told."),
        "tools": {"type": "array", "items": {"type": "object"}},
        "tool_choice": {"description": "none, auto, required, or an object that names a function."},
        "parallel_tool_calls": {"type": "boolean", "default": True},
        "chat_template_kwargs": {"type": "object", "description": "Variables of the model's chat template."},
        **shared,
    }
    asked = {"model": model, "prompt": "Once upon a time"}
    said = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    return {
        completions.PATH: {"post": _route("Completions", ["model", "prompt"], completion, asked)},
        chat.PATH: {
            "post": _route(
                "Chat completions", ["model", "messages"], talk, said if facts.decoder.chat_template else None
            )
        },
    }


def _shared(facts: Facts) -> dict[str, Any]:
    usual = dict(facts.decoder.defaults)
    return {
        "n": _integer(1, MAX_ANSWERS, "Answers to each prompt.", 1),
        "stream": {"type": "boolean", "default": False, "description": "Server-sent events, the last one `[DONE]`."},
        "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
        "stop": {"anyOf": [{"type": "string"}, {**_TEXTS, "maxItems": MAX_STOPS}]},
        "temperature": _number(0, 2, usual.get("temperature", 1.0)),
        "top_p": _number(0, 1, usual.get("topP", 1.0)),
        "top_k": _integer(-1, facts.vocabulary, "0 or -1: all.", int(usual.get("topK", 0))),
        "min_p": _number(0, 1, usual.get("minP", 0.0)),
        "repetition_penalty": _number(LEAST_PENALTY, 10, usual.get("repetitionPenalty", 1.0)),
        "presence_penalty": _number(-2, 2, 0.0),
        "frequency_penalty": _number(-2, 2, 0.0),
        "logit_bias": {"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
        "seed": {"type": "integer", "description": "The same answer every time, whatever runs beside it."},
        "response_format": {
            "type": "object",
            "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": {"type": "object"}},
        },
        "min_tokens": _integer(0, facts.max_length, "None of them ends the answer.", 0),
        "ignore_eos": {"type": "boolean", "default": False},
        "stop_token_ids": _TOKENS,
        "skip_special_tokens": {"type": "boolean", "default": True},
    }


def _route(
    summary: str, required: list[str], properties: dict[str, Any], example: dict[str, Any] | None
) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    content = {"schema": schema} if example is None else {"schema": schema, "example": example}
    answer = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}}
    named = {REVISION_HEADER: {"description": "The revision that answers.", "schema": {"type": "string"}}}
    return {
        "tags": ["OpenAI"],
        "summary": f"{summary}, as OpenAI's clients ask for them",
        "parameters": [
            _header(TIMEOUT_HEADER, "A duration such as 30s, of the whole request."),
            _header(PRIORITY_HEADER, "low, normal or high."),
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": {"description": "Whole, or event by event.", "headers": named, "content": answer},
            **{status: _refusal(status, said) for status, said in _REFUSALS.items()},
        },
    }


def _refusal(status: str, said: str) -> dict[str, Any]:
    headers = {NOT_ADMITTED_HEADER: {"description": "1: no model has seen it.", "schema": {"type": "string"}}}
    return {
        "description": said,
        **({"headers": headers} if status in ("429", "503") else {}),
        "content": {"application/json": {"schema": _ERROR}},
    }


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}


def _integer(least: int, most: int, description: str, default: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most, "description": description}
    return found if default is None else {**found, "default": default}


def _number(least: float, most: float, default: float) -> dict[str, Any]:
    return {"type": "number", "minimum": least, "maximum": most, "default": default}
