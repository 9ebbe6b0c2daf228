"""What is taken as a constraint, as llguidance's grammar."""

from llguidance import LLMatcher

from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.constraints.bounds import check_grammar, check_schema, check_text
from headway_runtime.generation.values import Constraint, ConstraintKind

_ANY_OBJECT = '{"type": "object"}'
_SPACE = {"whitespace_pattern": r"[ \n\r\t]{0,32}"}
"""Between the parts of a JSON text; without a bound, small models go on with spaces for ever."""


def grammar(constraint: Constraint) -> str:
    """Not compiled yet. Raises InvalidRequestError."""
    what, text = f"{constraint.kind} of the request", constraint.text
    check_text(what, text)
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return _json(what, _ANY_OBJECT)
        case ConstraintKind.JSON_SCHEMA:
            check_schema(what, text)
            return _json(what, text)
        case ConstraintKind.REGEX:
            return str(LLMatcher.grammar_from_regex(text))
        case ConstraintKind.GRAMMAR:
            check_grammar(what, text)
            return str(LLMatcher.grammar_from_lark(text))


def _json(what: str, schema: str) -> str:
    try:
        return str(LLMatcher.grammar_from_json_schema(schema, overrides=_SPACE))
    except ValueError as error:
        raise InvalidRequestError(f"the {what} is not a schema: {error}") from None
