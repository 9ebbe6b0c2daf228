"""JSON with limits: size, depth, count, integers of 64 bits, no duplicate keys, no NaN. Whatever two readers could
read differently is refused.
"""

import json
import math
import re
from typing import Any

from headway_runtime.prepare.errors import Refusal

MAX_BYTES = 64 << 20
MAX_DEPTH = 128
MAX_CONTAINERS = 4_000_000
MAX_STRING = 1 << 16
MAX_INT = 2**63
MAX_NUMBER = 64
"""Characters of a number with a fraction or an exponent."""

# A string, or a bracket that opens (1) or closes (2). Possessive, and to the end when a string is not closed: no byte
# is looked at twice, whatever the text.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|([\[{])|([\]}])', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(data: bytes) -> Any:
    """The value of UTF-8 JSON text. Raises Refusal ``json.*``."""
    if (
        len(data) > MAX_BYTES
        or max(data.count(b"[") + data.count(b"{"), data.count(b"]") + data.count(b"}")) > MAX_CONTAINERS
        or data.count(b",") > 2 * MAX_CONTAINERS
    ):
        raise Refusal("json.size", f"{len(data)} bytes")
    _check_depth(data)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
        )
        if _SURROGATE.search(data):  # a pair is a character; one alone is none, and no encoder takes it
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as e:
        raise Refusal("json.syntax", e) from e


def dump(value: Any) -> bytes:
    """Canonical text: sorted keys, no spaces, ASCII; the same value gives the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _check_depth(data: bytes) -> None:
    """Before parsing: json's own recursion guard is the interpreter's, not ours."""
    depth = 0
    for token in _TOKENS.finditer(data):  # one by one: a list of them takes ten times the text
        if token.lastindex == 1:
            depth += 1
            if depth > MAX_DEPTH:
                raise Refusal("json.size", f"nested more than {MAX_DEPTH} levels")
        elif token.lastindex == 2:
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Refusal("json.duplicate", sorted({k for k, _ in pairs})[:3])
    return value


def _constant(name: str) -> Any:
    raise Refusal("json.number", name)


def _float(text: str) -> float:
    value = float(text) if len(text) <= MAX_NUMBER else math.inf
    if not math.isfinite(value):
        raise Refusal("json.number", text[:40])
    return value


def _integer(text: str) -> int:
    if len(text) > 20 or not -MAX_INT <= (value := int(text)) < MAX_INT:
        raise Refusal("json.number", text[:40])
    return value
