"""What is taken as a constraint, as llguidance's grammar."""

from llguidance import LLMatcher

from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.values import Constraint, ConstraintKind

MAX_TEXT = 1 << 16
"""Characters of a schema, an expression or a grammar."""


def grammar(constraint: Constraint) -> str:
    """Not compiled yet. Raises InvalidRequestError."""
    if len(constraint.text) > MAX_TEXT:
        raise InvalidRequestError(
            f"the {constraint.kind} of the request has {len(constraint.text)} characters; at most {MAX_TEXT} are taken"
        )
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return _json('{"type": "object"}')
        case ConstraintKind.JSON_SCHEMA:
            return _json(constraint.text)
        case ConstraintKind.REGEX:
            return str(LLMatcher.grammar_from_regex(constraint.text))
        case ConstraintKind.GRAMMAR:
            return str(LLMatcher.grammar_from_lark(constraint.text))


def _json(schema: str) -> str:
    try:
        return str(LLMatcher.grammar_from_json_schema(schema))
    except ValueError as error:
        raise InvalidRequestError(f"the json_schema of the request is not one: {error}") from None
