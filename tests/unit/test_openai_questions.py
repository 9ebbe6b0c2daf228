"""What is asked of a decoder: from OpenAI's body to a question, and every way in which a body can be wrong."""

import json
from typing import Any

import pytest
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import ConstraintKind
from headway_runtime.prepare.decoder import DecoderFacts
from headway_runtime.protocols.openai import chat, completions
from headway_runtime.protocols.openai.errors import ParameterError, error_body
from headway_runtime.protocols.openai.question import CallForm, Chat
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

DEFAULTS = (("temperature", 0.7), ("topK", 20), ("topP", 0.9))
DECODER = DecoderFacts(512, (1, 2), "{{ '<tool_call>' }}", defaults=DEFAULTS)
FACTS = Facts(DECODER, Tokenizer(models.BPE()), 100, 256)
MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "$defs": {"city": {}}},
    },
}
OTHER = {"type": "function", "function": {"name": "time"}}


def of_completion(**body: Any) -> Any:
    return completions.read({"model": "m", "prompt": "p", **body}, FACTS)


def of_chat(**body: Any) -> Any:
    return chat.read({"model": "m", "messages": MESSAGES, **body}, FACTS)


def test_what_is_not_said_is_as_the_artifact_has_it_and_then_as_openai_has_it() -> None:
    generate = of_completion().generate
    sampling = generate.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.7, 20, 0.9, 0.0)
    assert (generate.n, generate.max_tokens, generate.stop, generate.logprobs) == (1, 16, (), None)
    assert generate.stop_tokens == {1, 2}
    assert of_chat().generate.max_tokens == 0, "as many as there is room for"


def test_null_is_as_if_nothing_was_said() -> None:
    assert of_completion(temperature=None, stop=None, n=None, logit_bias=None, suffix=None) == of_completion()


def test_every_field_of_sampling_arrives() -> None:
    question = of_completion(
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=-1,
        frequency_penalty=2,
        logit_bias={"7": -100},
        seed=-5,
        n=3,
        best_of=3,
        stop=["a", "b"],
        stop_token_ids=[9],
        ignore_eos=True,
        min_tokens=2,
        skip_special_tokens=False,
        max_tokens=20,
        logprobs=4,
        echo=True,
        user="u",
        metadata={"a": "b"},
        store=True,
    )
    generate, sampling = question.generate, question.generate.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.0, 0.5, 0, 0.1)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.2, -1.0, 2.0)
    assert (sampling.logit_bias, sampling.seed) == ({7: -100.0}, -5)
    assert (generate.n, generate.stop, generate.stop_tokens, generate.min_tokens) == (3, ("a", "b"), {9}, 2)
    assert (generate.skip_special_tokens, generate.logprobs, question.echo) == (False, 4, True)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3))), ("", ("",))],
)
def test_prompts_are_texts_or_tokens_one_or_many(prompt: object, expected: object) -> None:
    assert of_completion(prompt=prompt).prompts == expected


@pytest.mark.parametrize(
    ("body", "parameter", "words"),
    [
        ({"temperature": 2.5}, "temperature", "2.5 is not a number from 0 to 2"),
        ({"temperature": "hot"}, "temperature", "'hot' is not a number"),
        ({"temperature": True}, "temperature", "true is not a number"),
        ({"top_p": 0}, "top_p", "above 0, up to 1"),
        ({"top_k": 1000}, "top_k", "from -1 to 100"),
        ({"n": 0}, "n", "from 1 to 128"),
        ({"n": 2.0}, "n", "2.0 is not an integer"),
        ({"best_of": 4}, "best_of", "4 is not n (1)"),
        ({"max_tokens": 0}, "max_tokens", "from 1 to 10000000"),
        ({"stop": ["a"] * 5}, "stop", "at most 4 texts"),
        ({"stop": [""]}, "stop", "each of 1 to"),
        ({"stop": 3}, "stop", "3 is not a text"),
        ({"stop_token_ids": [100]}, "stop_token_ids", "from 0 to 99"),
        ({"min_tokens": 17}, "min_tokens", "from 0 to 16"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "'x' is not a token id"),
        ({"logit_bias": {"100": 1}}, "logit_bias", "'100' is not a token id from 0 to 99"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "is not a token id"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "from -100 to 100"),
        ({"logit_bias": [1]}, "logit_bias", "is not an object"),
        ({"seed": 2**64}, "seed", "is not an integer"),
        ({"logprobs": 21}, "logprobs", "from 0 to 20"),
        ({"logprobs": True}, "logprobs", "true is not an integer"),
        ({"logprobs": 1, "echo": True, "stream": True}, "logprobs", "set 'stream' to false"),
        ({"stream": "yes"}, "stream", "'yes' is not true or false"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "'stream' is not true"),
        ({"stream": True, "stream_options": {"usage": 1}}, "stream_options.usage", "is no field"),
        ({"suffix": "x"}, "suffix", "not served"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'?"),
        ({"zzz": 1}, "zzz", "docs/protocols.md"),
        ({"messages": MESSAGES}, "messages", "/v1/chat/completions"),
        ({"prompt": None}, "prompt", "is not given"),
        ({"prompt": []}, "prompt", "a text, a list of texts"),
        ({"prompt": {"a": 1}}, "prompt", "a text, a list of texts"),
        ({"prompt": ["a", 1]}, "prompt", "prompt 1 must be a text, or token ids from 0 to 99"),
        ({"prompt": [[]]}, "prompt", "prompt 0 must be"),
        ({"prompt": [100]}, "prompt", "prompt 0 must be"),
        ({"prompt": ["a"] * 129}, "prompt", "129 prompts; at most 128"),
        ({"prompt": ["a"] * 128, "n": 5}, "n", "5 answers to 128 prompts; at most 512"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "one of text, json_object, json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "is not a JSON schema"),
        ({"guided_regex": ""}, "guided_regex", "is not a text"),
        ({"guided_json": "{"}, "guided_json", "is not JSON"),
        ({"guided_choice": []}, "guided_choice", "a list of 1 to 1000 texts"),
        ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs", "takes one of"),
        ({"structured_outputs": {"rgx": "a"}}, "structured_outputs.rgx", "did you mean 'regex'?"),
    ],
)
def test_a_wrong_completion_names_the_field_and_what_is_allowed(
    body: dict[str, Any], parameter: str, words: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        of_completion(**body)
    assert refused.value.parameter == parameter
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"{parameter}: ")


@pytest.mark.parametrize(
    ("body", "parameter", "words"),
    [
        ({"messages": []}, "messages", "has 0 messages"),
        ({"messages": None}, "messages", "is not given"),
        ({"messages": ["hi"]}, "messages.0", "must be an object"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role", "'robot' is not one of system"),
        ({"messages": [*MESSAGES, {"role": "user"}]}, "messages.1.content", "is not a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "messages.0.content.0",
            "of type 'image_url' is not taken",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "messages.0.tool_calls.0.function.arguments",
            "is not JSON",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages.0.tool_calls.0", "must have a function"),
        ({"prompt": "x"}, "prompt", "takes 'messages'"),
        ({"functions": []}, "functions", "use 'tools'"),
        ({"audio": {}}, "audio", "is not made"),
        ({"modalities": ["audio"]}, "modalities", "makes no other"),
        ({"top_logprobs": 3}, "top_logprobs", "needs 'logprobs': true"),
        ({"logprobs": 3}, "logprobs", "3 is not true or false"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "give one of them"),
        ({"chat_template": "x"}, "chat_template", "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs.messages", "the route's own"),
        ({"continue_final_message": True}, "continue_final_message", "not served"),
        ({"tools": [{}]}, "tools.0", "of type function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "letters, digits"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice", "none, auto, required"),
        ({"tool_choice": "required"}, "tool_choice", "needs 'tools'"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice.function.name",
            "none of the tools",
        ),
        (
            {"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_choice",
            "give one of them",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            None,
            "both rule the answer",
        ),
    ],
)
def test_a_wrong_chat_names_the_field_and_what_is_allowed(
    body: dict[str, Any], parameter: str | None, words: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        of_chat(**body)
    assert parameter in (None, refused.value.parameter)
    assert words in str(refused.value)


def test_messages_are_as_templates_want_them() -> None:
    question = of_chat(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        ],
        chat_template_kwargs={"enable_thinking": False},
        reasoning_effort="low",
    )
    (asked,) = question.prompts
    assert isinstance(asked, Chat)
    system, user, assistant, tool = asked.messages
    assert system == {"role": "system", "content": "be brief"}
    assert user == {"role": "user", "name": "x", "content": "ab"}
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    assert assistant["content"] == ""
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    assert asked.variables == {"enable_thinking": False, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"response_format": {"type": "text"}}, None, ""),
        ({"response_format": {"type": "json_object"}}, ConstraintKind.JSON_OBJECT, ""),
        ({"structured_outputs": {"json_object": True}}, ConstraintKind.JSON_OBJECT, ""),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {}}}},
            ConstraintKind.JSON_SCHEMA,
            "{}",
        ),
        ({"guided_json": '{"type": "object"}'}, ConstraintKind.JSON_SCHEMA, '{"type":"object"}'),
        ({"guided_regex": "[ab]+"}, ConstraintKind.REGEX, "[ab]+"),
        ({"structured_outputs": {"regex": "a"}}, ConstraintKind.REGEX, "a"),
        ({"guided_grammar": 'start: "a"'}, ConstraintKind.GRAMMAR, 'start: "a"'),
        ({"structured_outputs": {"choice": ["yes", 'n"o']}}, ConstraintKind.GRAMMAR, 'start: "yes" | "n\\"o"'),
    ],
)
def test_formats_become_constraints(body: dict[str, Any], kind: ConstraintKind | None, text: str) -> None:
    constraint = of_completion(**body).generate.sampling.constraint
    assert (None if constraint is None else constraint.kind) == kind
    assert constraint is None or constraint.text == text


def test_tools_are_shown_to_the_template_and_read_in_its_form() -> None:
    question = of_chat(tools=[TOOL])
    assert question.prompts[0].tools == (TOOL,)
    assert (question.calls, question.generate.sampling.constraint) == (CallForm.HERMES, None)
    none = of_chat(tools=[TOOL], tool_choice="none")
    assert (none.prompts[0].tools, none.calls) == ((), CallForm.NONE)


def test_a_named_tool_is_demanded_by_the_schema_of_its_arguments() -> None:
    question = of_chat(tools=[OTHER, TOOL], tool_choice={"type": "function", "function": {"name": "weather"}})
    assert (question.calls, question.tool) == (CallForm.ARGUMENTS, "weather")
    assert json.loads(question.generate.sampling.constraint.text) == TOOL["function"]["parameters"]  # type: ignore[index]


def test_any_tool_is_demanded_by_a_schema_of_a_list_with_definitions_at_its_top() -> None:
    question = of_chat(tools=[TOOL, OTHER], tool_choice="required", parallel_tool_calls=False)
    schema = json.loads(question.generate.sampling.constraint.text)
    assert question.calls is CallForm.LIST
    assert (schema["type"], schema["minItems"], schema["maxItems"]) == ("array", 1, 1)
    assert schema["$defs"] == {"city": {}}
    weather, time = schema["items"]["anyOf"]
    assert weather["properties"]["name"] == {"const": "weather"}
    assert "$defs" not in weather["properties"]["arguments"]
    assert time["properties"]["arguments"] == {"type": "object"}


def test_forms_are_known_by_the_template() -> None:
    from headway_runtime.protocols.openai.tools import form_of

    assert form_of("{{ '<tool_call>' }}") is CallForm.HERMES
    assert form_of('{% if tools %}{"name": function name, "parameters": dictionary}') is CallForm.LLAMA
    assert form_of('{{ \'{\\"name\\": x, \\"parameters\\": y}\' }} tools') is CallForm.LLAMA
    assert form_of("{{ messages }}") is CallForm.NONE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted(completions.KNOWN | chat.KNOWN | {"unknown"})
MESSAGE = st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id"]), JSON)
PART = st.dictionaries(st.sampled_from(["type", "text", "function", "name", "parameters"]), JSON)


@given(body=st.dictionaries(st.sampled_from(NAMES), JSON | st.lists(MESSAGE | PART, max_size=3) | PART, max_size=6))
@settings(max_examples=400, deadline=None)
def test_whatever_a_body_holds_it_is_read_or_refused_with_a_field(body: dict[str, Any]) -> None:
    refusals = []
    for read in (of_completion, of_chat):
        try:
            read(**{"model": "m", **body, "max_tokens": 5})
        except ParameterError as error:
            refusals.append(error)
    for refused in refusals:
        assert refused.parameter
        assert json.loads(error_body(refused))["error"]["message"]
