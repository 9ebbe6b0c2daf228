"""What an answer must look like: `response_format`, and vLLM's `structured_outputs` and `guided_*`. Pure.

A JSON schema is obeyed as it is written, whether `strict` is set or not.
"""

import json
from collections.abc import Callable
from typing import Any

import orjson

from headway_runtime.generation.values import Constraint, ConstraintKind
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields

MAX_CONSTRAINT = 1 << 18  # characters of a schema, an expression or a grammar
MAX_CHOICES = 1000
_GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
FORMATS = frozenset({"response_format", "structured_outputs", *_GUIDED})


def constraint_of(fields: Fields) -> Constraint | None:
    """None: any text. Raises ParameterError, also for two at a time."""
    given = [name for name in FORMATS if fields.raw(name) is not None]
    found = [(name, constraint) for name in given if (constraint := _one(fields, name)) is not None]
    if len(found) > 1:
        raise ParameterError(found[1][0], f"and {found[0][0]!r} both rule the answer; give one of them")
    return found[0][1] if found else None


def schema_constraint(schema: object, path: str) -> Constraint:
    """Of a JSON schema. Raises ParameterError."""
    if not isinstance(schema, dict):
        raise ParameterError(path, "is not a JSON schema, which is an object here")
    try:
        text = orjson.dumps(schema).decode()
    except orjson.JSONEncodeError:  # what came as JSON lacks but room for what is within something
        raise ParameterError(path, "is nested too deeply") from None
    return _checked(Constraint(ConstraintKind.JSON_SCHEMA, text), path)


def _one(fields: Fields, name: str) -> Constraint | None:
    if name == "response_format":
        return _response_format(fields)
    if name in _GUIDED:
        return _KINDS[_GUIDED[name]](fields.raw(name), name)
    options = fields.object(name)
    assert options is not None
    options.only({*_KINDS, "json_object"}, {})
    names = options.names()
    if len(names) != 1:
        raise ParameterError(name, f"takes one of {', '.join((*_KINDS, 'json_object'))}")
    if names[0] == "json_object":
        return Constraint(ConstraintKind.JSON_OBJECT) if options.boolean("json_object") else None
    return _KINDS[names[0]](options.raw(names[0]), options.at(names[0]))


def _response_format(fields: Fields) -> Constraint | None:
    wanted = fields.object("response_format")
    assert wanted is not None
    match wanted.raw("type"):
        case "text":
            return None
        case "json_object":
            return Constraint(ConstraintKind.JSON_OBJECT)
        case "json_schema":
            named = wanted.object("json_schema")
            schema = None if named is None else named.raw("schema")
            return schema_constraint(schema, wanted.at("json_schema.schema"))
        case _:
            raise wanted.error("type", "one of text, json_object, json_schema")


def _json(value: Any, path: str) -> Constraint:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise ParameterError(path, f"is not JSON: {error}") from None
    return schema_constraint(value, path)


def _regex(value: Any, path: str) -> Constraint:
    return _checked(Constraint(ConstraintKind.REGEX, _text(value, path)), path)


def _grammar(value: Any, path: str) -> Constraint:
    return _checked(Constraint(ConstraintKind.GRAMMAR, _text(value, path)), path)


def _choice(value: Any, path: str) -> Constraint:
    good = isinstance(value, list) and 0 < len(value) <= MAX_CHOICES
    if not good or not all(isinstance(each, str) and each for each in value):
        raise ParameterError(path, f"is not a list of 1 to {MAX_CHOICES} texts")
    if (size := sum(map(len, value))) > MAX_CONSTRAINT:
        raise ParameterError(path, f"has {size} characters; at most {MAX_CONSTRAINT}")
    lines = f"start: {' | '.join(json.dumps(each) for each in value)}"
    return _checked(Constraint(ConstraintKind.GRAMMAR, lines), path)


_KINDS: dict[str, Callable[[Any, str], Constraint]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError(path, "is not a text")
    return value


def _checked(constraint: Constraint, path: str) -> Constraint:
    if len(constraint.text) > MAX_CONSTRAINT:
        raise ParameterError(path, f"has {len(constraint.text)} characters; at most {MAX_CONSTRAINT}")
    return constraint
