"""Calls of tools in what a model says, cut into pieces anywhere."""

import itertools
import json

import pytest
from headway_runtime.protocols.openai.calls import calls_of
from headway_runtime.protocols.openai.question import CallForm
from hypothesis import given, settings
from hypothesis import strategies as st

TOOLS = frozenset({"f", "g"})
Found = tuple[str, list[tuple[str, str]], int]


def read(form: CallForm, text: str, cuts: list[int]) -> Found:
    """Content, calls with their arguments, and how many were counted."""
    calls = calls_of(form, TOOLS, "f")
    assert calls is not None
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    deltas = [delta for begin, stop in itertools.pairwise(places) for delta in calls.push(text[begin:stop])]
    deltas += calls.finish()
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for delta in deltas:
        if delta.name is not None:
            assert delta.call not in names, "a call begins once"
            names[delta.call] = delta.name
        if delta.arguments:
            assert delta.call in names, "arguments come after the name"
            arguments[delta.call] = arguments.get(delta.call, "") + delta.arguments
    found = [(name, arguments.get(number, "")) for number, name in names.items()]
    return "".join(delta.content for delta in deltas), found, calls.called


CASES: dict[str, tuple[CallForm, str, str, list[tuple[str, str]]]] = {
    "hermes, text and two calls": (
        CallForm.HERMES,
        (
            'Sure.\n<tool_call>\n{"name": "f", "arguments": {"a": "}<", "b": [1, {"c": 2}]} }\n</tool_call>\n'
            '<tool_call>{"arguments": {"x":1}, "name":"g"}</tool_call>\n'
        ),
        "Sure.\n",
        [("f", '{"a": "}<", "b": [1, {"c": 2}]}'), ("g", '{"x":1}')],
    ),
    "hermes, text after a call": (
        CallForm.HERMES,
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>\nDone.',
        "\nDone.",
        [("g", "{}")],
    ),
    "hermes, marks that are none": (
        CallForm.HERMES,
        "a < b <tool <tool_call>\n<function=x>",
        "a < b <tool <tool_call>\n<function=x>",
        [],
    ),
    "hermes, cut off in the arguments": (
        CallForm.HERMES,
        '<tool_call>\n{"name": "f", "arguments": {"a": 1',
        "",
        [("f", '{"a": 1')],
    ),
    "hermes, cut off before its name": (CallForm.HERMES, '<tool_call>\n{"na', '{"na', []),
    "hermes, spaces at the end of text": (CallForm.HERMES, "hello \n", "hello \n", []),
    "llama, two calls": (
        CallForm.LLAMA,
        '{"name": "f", "parameters": {"a": "x\\"y"}}; {"type": "function", "name": "g", "parameters": {}}',
        "",
        [("f", '{"a": "x\\"y"}'), ("g", "{}")],
    ),
    "llama, JSON that is no call": (
        CallForm.LLAMA,
        '{"name": "Bob", "age": 3} ok',
        '{"name": "Bob", "age": 3} ok',
        [],
    ),
    "llama, a name further in": (
        CallForm.LLAMA,
        '{"age": 3, "b": {"name":"f"}}',
        '{"age": 3, "b": {"name":"f"}}',
        [],
    ),
    "llama, text": (CallForm.LLAMA, 'Hello {"name":"f"}', 'Hello {"name":"f"}', []),
    "llama, without arguments": (CallForm.LLAMA, '{"name": "f"}', "", [("f", "{}")]),
    "llama, arguments as a text": (
        CallForm.LLAMA,
        '{"name": "f", "parameters": "{\\"a\\": 1}"}',
        "",
        [("f", '{"a": 1}')],
    ),
    "a list": (
        CallForm.LIST,
        '[{"name":"f","arguments":{"a":1}}, {"name":"g","arguments":[]}]',
        "",
        [("f", '{"a":1}'), ("g", "[]")],
    ),
    "one that is named": (CallForm.ARGUMENTS, '{"a": 1}', "", [("f", '{"a": 1}')]),
}


@pytest.mark.parametrize("case", CASES)
@given(cuts=st.lists(st.integers(0, 200), max_size=40))
@settings(max_examples=40, deadline=None)
def test_where_the_pieces_end_makes_no_difference(case: str, cuts: list[int]) -> None:
    form, text, content, calls = CASES[case]
    assert read(form, text, cuts) == (content, calls, len(calls))


@given(
    arguments=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    indent=st.sampled_from([None, 1]),
    cuts=st.lists(st.integers(0, 500), max_size=30),
)
@settings(max_examples=150, deadline=None)
def test_arguments_of_any_kind_are_what_was_said(arguments: object, indent: int | None, cuts: list[int]) -> None:
    said = json.dumps({"name": "g", "arguments": arguments}, indent=indent, ensure_ascii=False)
    content, calls, count = read(CallForm.HERMES, f"<tool_call>{said}</tool_call>", cuts)
    assert (content, len(calls), count) == ("", 1, 1)
    name, found = calls[0]
    assert name == "g"
    if isinstance(arguments, str):
        assert found in (arguments, json.dumps(arguments, ensure_ascii=False))
    else:
        assert json.loads(found) == arguments


def test_arguments_leave_while_they_are_made() -> None:
    calls = calls_of(CallForm.HERMES, TOOLS, None)
    assert calls is not None
    assert calls.push('<tool_call>{"name": "f", "argum') == []
    (begins, first) = calls.push('ents": {"a": "lo')
    assert (begins.name, first.arguments) == ("f", '{"a": "lo')
    assert [delta.arguments for delta in calls.push("ng")] == ["ng"]


def test_text_is_kept_only_while_it_may_become_a_mark() -> None:
    calls = calls_of(CallForm.HERMES, TOOLS, None)
    assert calls is not None
    assert [delta.content for delta in calls.push("a <tool")] == ["a "]
    assert [delta.content for delta in calls.push("box")] == ["<toolbox"]
