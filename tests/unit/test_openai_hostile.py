"""Bodies that were made to hurt: what they cost others, and that whoever sends them is told the field."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from headway_runtime.generation.facts import Facts
from headway_runtime.protocols.openai import answering, chat, completions
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields, shown
from headway_runtime.protocols.openai.prompts import prompts_of
from headway_runtime.protocols.openai.question import Question

from tests.unit import text_server

MESSAGES = [{"role": "user", "content": "hi"}]
MANY = 900_000


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def function(**parameters: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


def of_completion(**body: Any) -> Question:
    return completions.read({"model": "m", "prompt": "p", **body}, text_server.facts())


def of_chat(**body: Any) -> Question:
    return chat.read({"model": "m", "messages": MESSAGES, **body}, text_server.facts())


@pytest.mark.parametrize(
    ("read", "body", "field"),
    [
        (of_completion, {"guided_json": nested(500)}, "guided_json"),
        (
            of_chat,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": nested(500)}}},
            "response_format.json_schema.schema",
        ),
        (of_chat, {"tools": function(items=nested(500)), "tool_choice": "required"}, "tools"),
        (of_chat, {"tools": function(**{"$defs": 5}), "tool_choice": "required"}, "tools.0.function.parameters.$defs"),
        (
            of_chat,
            {"tools": function(definitions=[1]), "tool_choice": "required"},
            "tools.0.function.parameters.definitions",
        ),
        (of_completion, {"repetition_penalty": 1e-300}, "repetition_penalty"),
        (of_completion, {"guided_choice": ["é" * 1000] * 1000}, "guided_choice"),
    ],
    ids=["deep", "deep format", "deep tool", "no definitions", "a list of definitions", "next to nothing", "long"],
)
def test_what_cannot_be_used_is_refused_with_its_field(
    read: Callable[..., Question], body: dict[str, Any], field: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        read(**body)
    assert refused.value.parameter == field


@pytest.mark.parametrize(
    "value",
    [
        "a" * 10_000_000,
        ["ab"] * MANY,
        {str(at): at for at in range(MANY)},
        [[["ab"] * MANY]],
        [["\x00" * 60] * 60] * 60,
    ],
    ids=["text", "list", "object", "lists", "many"],
)
def test_of_a_wrong_value_only_what_is_shown_is_looked_at(value: object) -> None:
    began = time.thread_time()
    text = shown(value)
    assert time.thread_time() - began < 0.02
    assert len(text) == 61 or "Ellipsis" in text


def test_small_values_are_shown_as_they_are() -> None:
    values: list[object] = ["a'b", 5, 1.5, None, [], {}, [1, [2]], {"a": [None, {}]}]
    assert [shown(value) for value in values] == [repr(value) for value in values]


def test_a_long_name_of_a_field_costs_no_more_than_a_short_one() -> None:
    began = time.thread_time()
    with pytest.raises(ParameterError, match="is no field that is read here"):
        Fields({"temperature" + "a" * 10_000_000: 1}).only({"temperature"}, {})
    assert time.thread_time() - began < 0.1


def test_while_a_long_prompt_is_tokenized_the_other_threads_run() -> None:
    """A pod that stands still for it ends no stream, and fails its liveness probe."""
    gaps: list[float] = []
    done = threading.Event()

    def tick() -> None:
        before = time.perf_counter()
        while not done.wait(0.001):
            gaps.append(-before + (before := time.perf_counter()))

    facts: Facts = text_server.facts()
    question = of_completion(prompt="ab cd " * 100_000)
    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        with pytest.raises(ParameterError, match="maximum context length"):
            prompts_of(question, facts, time.monotonic() + 60, lambda: False)
    finally:
        done.set()
        ticking.join()
    assert len(gaps) > 20, "with the interpreter held there are one or two"


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"n": 128, "logprobs": 20, "max_tokens": 400}, True),
        ({"n": 128, "logprobs": 20, "max_tokens": 400, "stream": True}, False),
        ({"n": 128, "logprobs": 0, "max_tokens": 400}, False),
        ({"n": 128, "logprobs": 20, "max_tokens": 1, "echo": True}, True),
        ({"prompt": [[5] * 400] * 128, "logprobs": 1, "max_tokens": 1, "echo": True}, False),
    ],
    ids=["many", "a stream", "none but the chosen", "the prompt of each", "as benchmarks ask"],
)
def test_a_whole_answer_keeps_only_so_many_logarithms(body: dict[str, Any], refused: bool) -> None:
    """One request for 128 answers of 8,192 tokens would take 3 GB of the pod."""
    facts = replace(text_server.facts(), max_length=512)
    question = of_completion(**{"prompt": [5] * 400 if "echo" in body else [5], **body})
    if not refused:
        assert prompts_of(question, facts, time.monotonic() + 60, lambda: False)
        return
    with pytest.raises(ParameterError, match="at most 1048576: lower max_tokens") as error:
        prompts_of(question, facts, time.monotonic() + 60, lambda: False)
    assert error.value.parameter == "logprobs"


def test_a_large_body_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def read(document: dict[str, Any], facts: Facts) -> Question:
        threads.append(threading.current_thread().name)
        return completions.read(document, facts)

    monkeypatch.setitem(answering.READERS, completions.PATH, read)
    with text_server.text_server() as server:
        for biases in (2, 100_000):
            body = {
                "model": server.pod.config.model,
                "prompt": "x",
                "logit_bias": {str(at): 200 for at in range(biases)},
            }
            answer = httpx.post(f"{server.url}{completions.PATH}", content=json.dumps(body), timeout=60)
            assert (answer.status_code, answer.json()["error"]["param"].split(".")[0]) == (400, "logit_bias")
    on_loop, beside = threads
    assert on_loop != beside
