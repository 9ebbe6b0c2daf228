"""A pod that generates text, asked by OpenAI's own client, waiting or not, whole or piece by piece."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from tests.unit.pod_process import MODEL, REVISION, PodProcess, until
from tests.unit.text_pod import text_pod

PROMPT = "The quick brown fox"
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What it is like somewhere",
            "parameters": {
                "type": "object",
                "properties": {"unit": {"enum": ["C", "F"]}, "days": {"enum": [1, 2, 3]}},
                "required": ["unit", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": False}}},
]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 24, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with text_pod(tmp_path_factory.mktemp("decoder")) as started:
        yield started


@pytest.fixture
def client(server: PodProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def other(server: PodProcess) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def said(client: OpenAI, **changes: Any) -> str:
    return client.completions.create(**{**GREEDY, "prompt": PROMPT, **changes}).choices[0].text


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_prompt_may_be_a_text_texts_or_tokens_and_is_answered_alike(client: OpenAI) -> None:
    alone = said(client)
    answer = client.completions.create(**GREEDY, prompt=[PROMPT, "Once upon a time", PROMPT])
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.choices[0].text == answer.choices[2].text == alone != answer.choices[1].text
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert (answer.model, answer.object, answer.system_fingerprint) == (MODEL, "text_completion", REVISION)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 72
    tokens = client.completions.create(**GREEDY, prompt=[[5, 6, 7], [8]])
    assert tokens.usage is not None
    assert tokens.usage.prompt_tokens == 4
    assert tokens.choices[1].text == said(client, prompt=[8])


def test_pieces_put_together_are_the_whole_and_end_with_the_usage(client: OpenAI) -> None:
    chunks = list(
        client.completions.create(**GREEDY, prompt=PROMPT, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == said(client)
    assert len(chunks) > 10
    assert len({chunk.id for chunk in chunks}) == 1
    *_, last, usage = chunks
    assert last.choices[0].finish_reason == "length"
    assert (usage.choices, usage.usage is None) == ([], False)
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 24
    assert usage.usage.total_tokens == 24 + usage.usage.prompt_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_prompt_that_was_asked_before_is_found_in_the_cache(client: OpenAI) -> None:
    long = "Once upon a time there was a model that said what came to its mind. " * 4
    client.completions.create(**GREEDY, prompt=long)
    usage = client.completions.create(**GREEDY, prompt=long).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert 0 < (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens


def test_answers_of_one_request_differ_and_a_seed_brings_them_back(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "temperature": 1.5, "n": 3, "seed": 7}
    first, again = (client.completions.create(**asked) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    assert texts == [choice.text for choice in again.choices]
    pieces = ["", "", ""]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            pieces[choice.index] += choice.text
    assert pieces == texts


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_found_wherever_its_tokens_end_and_never_shown(client: OpenAI, stream: bool) -> None:
    whole = said(client)
    for begin, length in ((3, 5), (7, 3), (10, 8)):
        stop = whole[begin : begin + length]
        expected = whole[: whole.index(stop)]
        if stream:
            chunks = list(client.completions.create(**GREEDY, prompt=PROMPT, stop=["zzz", stop], stream=True))
            found = "".join(chunk.choices[0].text for chunk in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            choice = client.completions.create(**GREEDY, prompt=PROMPT, stop=["zzz", stop]).choices[0]
            found, finish = choice.text, choice.finish_reason
        assert (found, finish) == (expected, "stop")


def test_logprobs_of_a_completion_have_the_text_in_parts(client: OpenAI) -> None:
    choice = client.completions.create(**GREEDY, prompt=PROMPT, logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert len(logprobs.tokens) == 24
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert logprob == max(top.values()) <= 0
        assert top[token] == logprob
        assert len(top) == 3
    whole = [token for token in logprobs.tokens if not token.startswith("bytes:")]
    assert all(token in choice.text for token in whole)
    assert logprobs.text_offset[0] == 0


def test_echo_tells_of_the_prompt_too(client: OpenAI) -> None:
    choice = client.completions.create(**GREEDY, prompt=PROMPT, logprobs=1, echo=True).choices[0]
    assert choice.text == PROMPT + said(client)
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.text_offset is not None
    prompt = logprobs.tokens[:-24]
    for token, offset in zip(prompt, logprobs.text_offset, strict=False):
        assert choice.text[offset : offset + len(token)] == token
    assert "".join(prompt).endswith(PROMPT)
    assert logprobs.token_logprobs[0] is None
    assert all(isinstance(each, float) for each in logprobs.token_logprobs[1:])
    streamed = client.completions.create(**GREEDY, prompt=PROMPT, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_a_chat_have_the_bytes_of_each_token(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {**GREEDY, "messages": user("hi"), "logprobs": True, "top_logprobs": 2}
    if stream:
        entries, text = [], ""
        for chunk in client.chat.completions.create(**asked, stream=True):
            logprobs = chunk.choices[0].logprobs
            entries += logprobs.content or [] if logprobs is not None else []
            text += chunk.choices[0].delta.content or ""
    else:
        choice = client.chat.completions.create(**asked).choices[0]
        assert choice.logprobs is not None
        entries, text = choice.logprobs.content or [], choice.message.content or ""
    assert len(entries) == 24
    data = b"".join(bytes(entry.bytes or []) for entry in entries)
    assert data.decode(errors="replace") == text
    for entry in entries:
        assert entry.top_logprobs[0].logprob == entry.logprob <= 0
        assert len(entry.top_logprobs) == 2


def test_a_chat_is_its_template_and_streams_alike(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "be brief"}, *user("hi")]
    whole = client.chat.completions.create(**GREEDY, messages=messages)
    message = whole.choices[0].message
    assert (message.role, message.tool_calls, whole.object) == ("assistant", None, "chat.completion")
    prompt = "<|begin|><|turn|>system\nbe brief<|end|><|turn|>user\nhi<|end|><|turn|>assistant\n"
    tokenized = client.completions.create(**GREEDY, prompt=prompt)
    assert message.content == tokenized.choices[0].text
    chunks: list[ChatCompletionChunk] = list(client.chat.completions.create(**GREEDY, messages=messages, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_without_a_bound_a_chat_goes_on_while_there_is_room(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=user("hi"), temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.total_tokens == 500
    assert answer.choices[0].finish_reason == "length"


class Weather(BaseModel):
    unit: Literal["C", "F"]
    days: Literal[1, 2, 3]


def test_a_schema_is_obeyed(client: OpenAI) -> None:
    for seed in range(3):
        parsed = client.chat.completions.parse(
            model=MODEL, messages=user("weather?"), response_format=Weather, seed=seed, max_tokens=200
        )
        assert isinstance(parsed.choices[0].message.parsed, Weather)
        assert parsed.choices[0].finish_reason == "stop"
    text = ""
    closed = {**Weather.model_json_schema(), "additionalProperties": False}  # others have no bound
    schema = {"type": "json_schema", "json_schema": {"name": "w", "schema": closed}}
    for chunk in client.chat.completions.create(
        model=MODEL,
        messages=user("weather?"),
        response_format=schema,
        stream=True,
        seed=0,
        max_tokens=200,  # type: ignore[arg-type]
    ):
        text += chunk.choices[0].delta.content or ""
    Weather.model_validate_json(text)


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"guided_regex": "[ab]{4}c"}, r"[ab]{4}c"), ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no")],
)
def test_expressions_and_choices_are_obeyed(client: OpenAI, body: dict[str, Any], expected: str) -> None:
    import re

    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=30, extra_body=body)
    assert re.fullmatch(expected, answer.choices[0].text)
    assert answer.choices[0].finish_reason == "stop"


def test_a_schema_that_cannot_be_obeyed_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt="x", extra_body={"guided_regex": "(("})
    assert "regex" in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_is_called_with_arguments_of_its_schema(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": user("?"),
        "max_tokens": 200,
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }
    if stream:
        with client.chat.completions.stream(**asked) as events:
            for _ in events:
                pass
            choice: Any = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name == "weather"
    Weather.model_validate_json(call.function.arguments)
    assert call.id.startswith("call_")
    assert choice.message.content is None
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_some_tool_is_called_where_one_is_demanded(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": user("?"),
        "max_tokens": 300,
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": 3,
    }
    if stream:
        with client.chat.completions.stream(**asked) as events:
            for _ in events:
                pass
            choice: Any = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name in ("weather", "now")
    assert isinstance(json.loads(call.function.arguments), dict)
    assert choice.finish_reason == "tool_calls"


def test_a_bias_and_stop_tokens_rule_what_is_said(client: OpenAI, server: PodProcess) -> None:
    answer = client.completions.create(**GREEDY, prompt=PROMPT, logit_bias={"40": 100})
    assert len(set(answer.choices[0].text)) == 1
    stopped = client.completions.create(
        model=MODEL, prompt=PROMPT, logit_bias={"40": 100}, temperature=0, extra_body={"stop_token_ids": [40]}
    )
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.usage is not None
    assert stopped.usage.completion_tokens == 1
    kept = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        logit_bias={"1": 100},
        temperature=0,
        max_tokens=9,
        extra_body={"min_tokens": 5},
    )
    assert kept.usage is not None
    assert kept.usage.completion_tokens == 6, "five others, then the end"


def test_the_model_is_listed(client: OpenAI) -> None:
    assert [(model.id, model.object, model.owned_by) for model in client.models.list()] == [(MODEL, "model", "headway")]
    assert client.models.retrieve(MODEL).model_dump()["max_model_len"] == 500
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-5")
    assert refused.value.code == "model_not_found"


def test_errors_are_those_that_the_client_knows(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="word " * 600)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "prompt")
    assert "maximum context length is 500 tokens" in long.value.message
    with pytest.raises(openai.BadRequestError) as asked_for_too_much:
        client.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=600, stream=True)
    assert (asked_for_too_much.value.code, asked_for_too_much.value.param) == ("context_length_exceeded", "messages")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-5", messages=user("hi"))
    with pytest.raises(openai.BadRequestError) as misspelt:
        client.completions.create(model=MODEL, prompt="x", extra_body={"temprature": 1})
    assert misspelt.value.param == "temprature"


def test_a_deadline_is_of_the_whole_request(client: OpenAI) -> None:
    endless: dict[str, Any] = {"model": MODEL, "prompt": "x", "max_tokens": 480, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.APIStatusError) as late:
        client.completions.create(**endless, n=8, extra_headers={"x-headway-timeout": "60ms"})
    assert late.value.status_code == 504


def test_who_leaves_in_the_midst_gives_back_what_its_answer_held(server: PodProcess, client: OpenAI) -> None:
    def free() -> int:
        return int(server.report()["generation"]["blocksFree"])

    before = until(lambda: free() if in_flight(server) == 0 else 0)
    left = cancelled(server)
    for _ in range(3):
        stream = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=470, n=4, stream=True, extra_body={"ignore_eos": True}
        )
        assert next(stream).choices
        stream.close()
    until(lambda: in_flight(server) == 0 and free() == before)
    assert cancelled(server) == left + 12


def metric(server: PodProcess, name: str) -> float:
    lines = server.admin("/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def in_flight(server: PodProcess) -> float:
    return metric(server, "headway_requests_in_flight")


def cancelled(server: PodProcess) -> float:
    return metric(server, 'headway_answers_total{reason="cancelled"}')


async def test_many_streams_at_once_are_each_what_they_are_alone(server: PodProcess, client: OpenAI) -> None:
    prompts = [f"{PROMPT} {number}" for number in range(12)]
    alone = [said(client, prompt=prompt) for prompt in prompts]

    async def stream(prompt: str, leave_after: int | None = None) -> str:
        text = ""
        async with await asked.completions.create(**GREEDY, prompt=prompt, stream=True) as chunks:
            async for chunk in chunks:
                text += chunk.choices[0].text
                if leave_after is not None and len(text) > leave_after:
                    break
        return text

    async with other(server) as asked:
        answers = await asyncio.gather(
            *(stream(prompt) for prompt in prompts), *(stream(prompt, leave_after=3) for prompt in prompts)
        )
    assert answers[:12] == alone
    assert all(text.startswith(part) for text, part in zip(alone, answers[12:], strict=True))


async def test_a_call_that_is_given_up_frees_its_sequence(server: PodProcess) -> None:
    before = cancelled(server)
    async with other(server) as asked:
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.3):
                await asked.completions.create(
                    model=MODEL, prompt="x", max_tokens=480, n=16, extra_body={"ignore_eos": True}
                )
        await asyncio.to_thread(until, lambda: in_flight(server) == 0)
        assert cancelled(server) == before + 16


def test_the_routes_are_described_with_the_models_own_limits(server: PodProcess) -> None:
    paths = server.client.get(f"{server.url}/openapi.json").json()["paths"]
    for path in ("/v1/completions", "/v1/chat/completions"):
        content = paths[path]["post"]["requestBody"]["content"]["application/json"]
        assert content["schema"]["properties"]["min_tokens"]["maximum"] == 500
        assert server.client.post(server.url + path, json=content["example"]).status_code == 200
    assert "/v1/models" in paths
    assert not any(path.endswith("/infer") for path in paths)
    assert server.client.get(f"{server.url}/docs").status_code == 200


def test_what_asks_for_tensors_is_told_what_to_use(server: PodProcess) -> None:
    answer = server.client.post(server.infer, json={"inputs": []})
    assert answer.status_code == 400
    assert "POST /v1/completions or /v1/chat/completions" in answer.json()["error"]
