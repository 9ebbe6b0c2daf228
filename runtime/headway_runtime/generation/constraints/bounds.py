"""What is refused before it is compiled, because llguidance would not come back from it, or not alive.

Its own limits hold for the rest. Found by trying (version 1.9): a chain of some 3,000 rules or references overflows a
stack of 8 MiB, which ends the process; automata of divisors, and of expressions that are intersected or complemented,
multiply their states, and no limit counts them.
"""

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import orjson

from headway_runtime.errors import InvalidRequestError

MAX_TEXT = 1 << 16
"""Characters of a schema, an expression or a grammar."""
MAX_REFERENCES = 512
"""Of a schema's `$ref`, or of a grammar's rules: so deep may a chain of them be."""
MAX_NESTING = 128
"""Of a grammar's brackets."""
MAX_DIVISOR = 1000
"""The least common multiple of all `multipleOf` of a schema, in the smallest decimal place that they use."""


_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|(?://|#)[^\n]*|/(?:\\.|[^/\\])+/|<[^<>\s]+>')
"""Strings, comments, expressions and special tokens of Lark, as llguidance reads them."""
_REFUSED = {
    "&": "terminals cannot be intersected",
    "~": "terminals cannot be complemented",
    "%json": "send a schema, or a grammar without one",
    "%regex": "write an expression",
    "%lark": "grammars cannot be nested",
    "@": "grammars cannot be nested",
}
_WORD = re.compile("|".join(map(re.escape, _REFUSED)))


def check_text(what: str, text: str) -> None:
    """Raises InvalidRequestError."""
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(f"the {what} has {len(text)} characters; at most {MAX_TEXT} are taken")


def check_schema(what: str, text: str) -> None:
    """Raises InvalidRequestError."""
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the {what} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidRequestError(f"the {what} must be a JSON object")
    references, divisors = 0, []
    for key, value in _members(schema):
        references += key in ("$ref", "$dynamicRef")
        if key == "multipleOf" and isinstance(value, int | float):
            divisors.append(value)
    if references > MAX_REFERENCES:
        raise InvalidRequestError(f"the {what} has {references} references; at most {MAX_REFERENCES} are taken")
    if _divisor(divisors) > MAX_DIVISOR:
        raise InvalidRequestError(
            f"the {what}: numbers must be multiples of too much; the least common multiple of all `multipleOf`, "
            f"without the decimal point, may be {MAX_DIVISOR}"
        )


def check_grammar(what: str, text: str) -> None:
    """Raises InvalidRequestError."""
    bare = _LITERAL.sub(" ", text)
    if (refused := _WORD.search(bare)) is not None:
        raise InvalidRequestError(f"the {what} has {refused[0]!r}, which is not taken: {_REFUSED[refused[0]]}")
    if (rules := bare.count(":")) > MAX_REFERENCES:
        raise InvalidRequestError(f"the {what} has {rules} rules; at most {MAX_REFERENCES} are taken")
    depth = deepest = 0
    for letter in bare:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise InvalidRequestError(
            f"the {what} has {deepest} brackets within each other; at most {MAX_NESTING} are taken"
        )


def _members(schema: Any) -> Iterator[tuple[str, Any]]:
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from here.items()
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)


def _divisor(values: Sequence[float]) -> int:
    """The least common multiple, in the smallest decimal place that is used: of 0.01 and 2 it is 200."""
    decimals = [Decimal(str(abs(value))).normalize() for value in values]
    smallest = min([0, *(int(decimal.as_tuple().exponent) for decimal in decimals)])
    return math.lcm(*(int(decimal.scaleb(-smallest)) or 1 for decimal in decimals))
