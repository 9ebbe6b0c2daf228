"""A conversation becomes what transformers makes of it, or the same error."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.chat import TemplateError, render
from headway_runtime.prepare.decoder import DecoderFacts
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

from tests.unit.chat_templates import FAMILIES

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather — today.\nOr tomorrow.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A <b>city</b>"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = [{"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}]
Messages = list[dict[str, Any]]
CONVERSATIONS: dict[str, Messages] = {
    "one": [{"role": "user", "content": "Hi there"}],
    "system": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": " Hi \n"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "And <b>now</b>? 你好"},
    ],
    "reasoning": [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"},
        {"role": "user", "content": "3+3"},
        {"role": "assistant", "content": "6", "reasoning": "easy"},
        {"role": "user", "content": "ok", "name": None},
    ],
    "tools": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": CALL},
        {"role": "tool", "content": '{"t": 3}', "tool_call_id": "abcdefghi", "name": "get_weather"},
        {"role": "tool", "content": "3", "tool_call_id": "abcdefghj"},
        {"role": "assistant", "content": "3 degrees."},
        {"role": "user", "content": "thanks"},
    ],
    "not alternating": [{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "you"}]}],
    "many calls": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": CALL * 2}],
    "nobody": [],
}


def facts(template: str | None) -> DecoderFacts:
    return DecoderFacts(context=8, end=(0,), chat_template=template, begin_text="<s>", end_text="</s>")


def ours(template: str, messages: Messages, **other: Any) -> str:
    """The text, or what the error says."""
    try:
        return render(facts(template), messages, **other)
    except TemplateError as error:
        return f"ERROR {error}"


def theirs(
    template: str,
    messages: list[dict[str, Any]],
    *,
    tools: Any = None,
    add_generation_prompt: bool = True,
    **other: Any,
) -> str:
    given = {"bos_token": "<s>", "eos_token": "</s>", **other}
    normal = _normalize_chat_messages(messages)
    try:
        return render_jinja_template(
            [normal], tools=tools, chat_template=template, add_generation_prompt=add_generation_prompt, **given
        )[0][0]
    except Exception as error:
        return f"ERROR {error}"


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_is_what_transformers_makes_of_the_messages(family: str, conversation: str) -> None:
    template, messages = FAMILIES[family], CONVERSATIONS[conversation]
    for tools in (None, TOOLS):
        for opens in (True, False):
            for variables in ({}, {"enable_thinking": False, "date_string": "today", "eos_token": "<eos>"}):
                wanted = theirs(template, messages, tools=tools, add_generation_prompt=opens, **variables)
                got = ours(template, messages, tools=tools, add_generation_prompt=opens, variables=variables)
                assert got == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_the_templates_of_this_test_say_something(family: str) -> None:
    """They are not equal because nothing is rendered."""
    text = ours(FAMILIES[family], CONVERSATIONS["system"], tools=TOOLS, add_generation_prompt=True)
    assert "Hello!" in text
    assert "now" in text
    assert family == "turns" or "get_weather" in text


EXPRESSIONS = [
    "{{ 'a' ~ 1 ~ none ~ [1, 'b'] }}",
    "{{ missing }}|{{ missing is defined }}|{{ missing.deeper }}",
    "{{ missing + 'a' }}",
    "{{ missing() }}",
    "{{ 'a' + 1 }}",
    "{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 1 + 2.5 }}{{ -3 % 2 }}{{ 2 ** 10 }}{{ 1 / 0 }}",
    "{{ '<' ~ ('<b>'|safe) }}{{ '<i>' + ('<b>'|safe) }}{{ ('<b> '|safe).strip() }}",
    "{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "{% for c in 'abc' %}{{ loop.previtem }}{{ c }}{{ loop.nextitem }}{% endfor %}",
    "{% for x in range(3) if x != 1 %}{{ x }}{{ loop.length }}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{{ [[1, 'a'], [0, 'b']]|sort|tojson(indent=2) }}{{ ['b', 'A']|sort(case_sensitive=true) }}",
    "{{ [{'a': 1}, {'a': 1}, {'a': 2}]|groupby('a')|length }}{{ [3, 1]|min }}{{ 'x'|string }}",
    "{{ 'Hello World'|replace('o', '0', 1) }}{{ 'a-b'|title }}{{ 2.345|round(1, 'floor') }}{{ '7'|int + 1 }}",
    "{{ 'a\\nb'|indent(2, true) }}{{ 'abc'|reverse }}{{ [1, 2]|reverse|list }}{{ 'abc'|first }}{{ 'abc'[1:] }}",
    "{{ {'b': 1} | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}",
    "{{ 'a,b'.split(',')[1] }}{{ 'abc'.find('c') }}{{ 'a'.join(['1', '2']) }}{{ [1, 2].index(2) }}",
    "{{ raise_exception('of my own: ' ~ 1) }}",
    "{% set x = [] %}{{ x.append(1) }}",
    "{{ ''.__class__ }}",
    "{{ messages.nothing.at_all }}",
    "{% if messages %}  a  {% endif %}\n   {% if true %}\n b\n   {% endif %}\nc",
]


@pytest.mark.parametrize("template", EXPRESSIONS)
def test_a_piece_of_jinja_means_what_it_means_there(template: str) -> None:
    messages = CONVERSATIONS["one"]
    assert ours(template, messages) == theirs(template, messages)


def test_what_is_null_is_not_there() -> None:
    template, messages = "{{ messages[0].name is defined }}", [{"role": "user", "content": "x", "name": None}]
    assert ours(template, messages) == theirs(template, messages) == "False"


def test_the_time_is_the_pods() -> None:
    assert ours("{{ strftime_now('%Y') }}", []) == time.strftime("%Y")


def test_what_cannot_be_read_is_told_with_its_line() -> None:
    assert ours("{{ 1 }}\n{% if %}", []).startswith("ERROR the template cannot be read: ")
    assert ours("{{ 1 }}\n{% if %}", []).endswith("(line 2)")
    assert "No filter named 'urlize'" in ours("{{ 1|urlize }}", [])
    assert "no chat template" in _why(None)
    assert issubclass(TemplateError, InvalidRequestError)


def _why(template: str | None) -> str:
    with pytest.raises(TemplateError) as raised:
        render(facts(template), [])
    return str(raised.value)


def test_conversations_are_rendered_in_several_threads() -> None:
    def one(number: int) -> bool:
        messages = [{"role": "user", "content": f"{number}"}] * 50
        return ours(FAMILIES["thinking"], messages).count(f"user\n{number}<") == 50

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(40)))


def test_a_long_conversation_is_within_the_bounds() -> None:
    for family in ("thinking", "brackets", "turns", "headers"):
        for messages in (
            [{"role": role, "content": "word " * 40} for _ in range(2000) for role in ("user", "assistant")],
            [{"role": role, "content": "word " * 40_000} for _ in range(2) for role in ("user", "assistant")],
        ):
            assert not ours(FAMILIES[family], messages).startswith("ERROR")
