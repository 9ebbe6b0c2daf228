"""The strict JSON reader: what it refuses, and that no text takes it long."""

import json
import time
import tracemalloc
from typing import Any

import pytest
from headway_runtime.prepare.container.strict_json import MAX_DEPTH, parse
from headway_runtime.prepare.errors import Refusal
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES, st.booleans())
def test_what_json_writes_is_read(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")) == value


@given(st.text(alphabet='"\\[]{}a', max_size=40))
def test_brackets_in_strings_are_no_depth(text: str) -> None:
    assert parse(json.dumps(["[" * 200 + text]).encode()) == ["[" * 200 + text]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "json.size"),
        (b'{"a": 1, "a": 2}', "json.duplicate"),
        (b"[NaN]", "json.number"),
        (b"[1e999]", "json.number"),
        (b"[9223372036854775808]", "json.number"),
        (b'["', "json.syntax"),
        (b'["\\', "json.syntax"),
        (b"\xff", "json.syntax"),
        (b"", "json.syntax"),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(text: bytes, rule: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(text)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    "text",
    [b'["' + b'\\"' * 500_000, b'["' + b'\\"' * 500_000 + b'"]', b"[]" + b"]" * 8_000_000],
    ids=["never closed", "escapes", "closing brackets"],
)
def test_no_text_takes_long_or_much_memory(text: bytes) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        parse(text)
    except Refusal:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.process_time() - began < 3
    assert peak < 8 * len(text) + 2**20
