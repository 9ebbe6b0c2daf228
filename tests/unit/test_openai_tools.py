"""Calls of tools that a model decides on by itself, as OpenAI's client sees them, and what surrounds them."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from headway_runtime.generation.values import FinishReason
from headway_runtime.prepare.decoder import DecoderFacts
from openai import OpenAI

from tests.unit.pod_process import MODEL
from tests.unit.text_server import TextServer, facts, saying, text_server

TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
PIECES = (
    "I look.",
    "\n<tool",
    '_call>\n{"name": "wea',
    'ther", "argu',
    'ments": {"ci',
    'ty": "Oslo"}}\n</to',
    "ol_call>",
)


@pytest.fixture(scope="module")
def running() -> Iterator[TextServer]:
    with text_server() as served:
        yield served


@pytest.fixture
def server(running: TextServer) -> Iterator[TextServer]:
    with running.fresh() as served:
        yield served


@pytest.fixture
def client(server: TextServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def asked(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "?"}], "tools": TOOLS, **changes}


def test_a_call_is_read_from_a_whole_answer(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying(*PIECES)
    choice = client.chat.completions.create(**asked()).choices[0]
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    assert (choice.message.content, choice.finish_reason) == ("I look.\n", "tool_calls")


def test_a_call_is_read_from_a_stream_and_put_together_by_the_client(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying(*PIECES)
    with client.chat.completions.stream(**asked()) as stream:
        kinds = [event.type for event in stream]
        choice = stream.get_final_completion().choices[0]
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    assert choice.finish_reason == "tool_calls"
    assert kinds.count("tool_calls.function.arguments.delta") >= 2, "arguments come as they are made"


def test_a_call_that_is_cut_off_ends_by_its_length(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying('<tool_call>{"name": "weather", "arguments": {"ci', finish=FinishReason.LENGTH)
    choice = client.chat.completions.create(**asked()).choices[0]
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.arguments == '{"ci'
    assert choice.finish_reason == "length"


def test_each_answer_has_calls_of_its_own(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying(CALL)
    choices = client.chat.completions.create(**asked(n=2)).choices
    assert len({call.id for choice in choices for call in choice.message.tool_calls or []}) == 2


def test_the_template_is_shown_the_tools_unless_none_shall_be_called(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying(CALL)
    client.chat.completions.create(**asked())
    assert '"name": "weather"' in server.engine.asked[0].prompt
    choice = client.chat.completions.create(**asked(tool_choice="none")).choices[0]
    assert "weather" not in server.engine.asked[1].prompt
    assert (choice.message.content, choice.message.tool_calls) == (CALL, None)


def test_the_answer_of_a_tool_goes_back_to_the_template(server: TextServer, client: OpenAI) -> None:
    server.engine.script = saying("It rains.")
    call: Any = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages: list[Any] = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ]
    assert client.chat.completions.create(**asked(messages=messages)).choices[0].message.content == "It rains."
    assert "<|turn|>tool\nrain" in server.engine.asked[0].prompt


def test_a_template_that_refuses_the_messages_says_why() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    base = facts()
    refusing = type(base)(DecoderFacts(512, (1,), template), base.tokenizer, base.vocabulary, 256, base.constraints)
    with (
        text_server(refusing) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="roles must alternate") as refused,
    ):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "?"}])
    assert refused.value.param == "messages"


def test_a_model_without_a_template_says_what_to_use() -> None:
    base = facts()
    plain = type(base)(DecoderFacts(512, (1,)), base.tokenizer, base.vocabulary, 256, base.constraints)
    with (
        text_server(plain) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="no chat template; ask it by POST /v1/completions"),
    ):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "?"}])
