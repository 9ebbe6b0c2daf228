"""Text over gRPC, as Triton's clients ask its vLLM backend: many answers to each request of one call."""

import asyncio
import itertools
import json
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.unit.pod_process import MODEL, PodProcess, until
from tests.unit.text_pod import text_pod

PROMPT = "The quick brown fox"
GREEDY = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
Answers = queue.Queue[tuple[Any, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with text_pod(tmp_path_factory.mktemp("decoder")) as started:
        yield started


@pytest.fixture
def client(server: PodProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


def tensor(name: str, datatype: str, value: Any, of: Any = triton) -> Any:
    found = of.InferInput(name, [1], datatype)
    found.set_data_from_numpy(np.array([value], dtype=np.object_ if datatype == "BYTES" else bool))
    return found


def inputs(prompt: str = PROMPT, *, stream: bool = True, of: Any = triton, **texts: str) -> list[Any]:
    more = [tensor(name, "BYTES", value.encode(), of) for name, value in texts.items()]
    return [tensor("text_input", "BYTES", prompt.encode(), of), tensor("stream", "BOOL", stream, of), *more]


def over_http(server: PodProcess, **body: Any) -> str:
    asked = {"model": MODEL, "prompt": PROMPT, **GREEDY, **body}
    text: str = server.client.post(f"{server.url}/v1/completions", json=asked).json()["choices"][0]["text"]
    return text


def texts_of(result: Any) -> list[str]:
    return [each.decode() for each in result.as_numpy("text_output")]


def is_final(result: Any) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def read(answers: Answers) -> list[Any]:
    """What comes until the final one of a request."""
    found = []
    while not found or not is_final(found[-1]):
        result, error = answers.get(timeout=60)
        assert error is None, error
        found.append(result)
    return found


def metric(server: PodProcess, name: str) -> float:
    lines = server.admin("/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def in_flight(server: PodProcess) -> float:
    return metric(server, "headway_requests_in_flight")


def cancelled(server: PodProcess) -> float:
    return metric(server, 'headway_answers_total{reason="cancelled"}')


def test_a_stream_is_the_whole_text_in_many_answers(server: PodProcess, client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(MODEL, inputs(), request_id="a", parameters=GREEDY)
        found = read(answers)
    finally:
        client.stop_stream()
    assert len(found) > 10
    assert {result.get_response().id for result in found} == {"a"}
    assert "".join(texts_of(result)[0] for result in found) == over_http(server)


def test_without_a_stream_one_answer_has_the_prompt_and_the_text(
    server: PodProcess, client: triton.InferenceServerClient
) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(MODEL, inputs(stream=False), parameters={**GREEDY, "n": 2, "seed": 1})
        (whole,) = read(answers)
        excluded = [*inputs(stream=False), tensor("exclude_input_in_output", "BOOL", True)]
        client.async_stream_infer(MODEL, excluded, parameters=GREEDY)
        (text,) = read(answers)
    finally:
        client.stop_stream()
    expected = over_http(server)
    assert texts_of(whole) == [PROMPT + expected] * 2
    assert texts_of(text) == [expected]


def test_parameters_may_be_texts_or_an_input(server: PodProcess, client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    as_texts = {"temperature": "0.0", "max_tokens": "24", "ignore_eos": "true", "stop": "12"}
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(MODEL, inputs(), parameters=as_texts)
        first = "".join(texts_of(result)[0] for result in read(answers))
        client.async_stream_infer(MODEL, inputs(sampling_parameters=json.dumps(as_texts)), parameters={"n": 3})
        second = "".join(texts_of(result)[0] for result in read(answers))
    finally:
        client.stop_stream()
    assert first == second == over_http(server)


def test_requests_of_one_call_run_beside_one_another(server: PodProcess, client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    prompts = [f"{PROMPT} {number}" for number in range(4)]
    order: list[str] = []
    pieces = dict.fromkeys(map(str, range(4)), "")
    try:
        for at, prompt in enumerate(prompts):
            client.async_stream_infer(MODEL, inputs(prompt), request_id=str(at), parameters=GREEDY)
        left = 4
        while left:
            result, error = answers.get(timeout=60)
            assert error is None
            identifier = result.get_response().id
            order.append(identifier)
            pieces[identifier] += texts_of(result)[0]
            left -= is_final(result)
    finally:
        client.stop_stream()
    assert list(pieces.values()) == [over_http(server, prompt=prompt) for prompt in prompts]
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > 8, "their answers come in turns"


@pytest.mark.parametrize(
    ("given", "parameters", "words"),
    [
        ({}, {"temprature": 1.0}, "did you mean 'temperature'?"),
        ({}, {"max_tokens": 0}, "max_tokens: 0 is not an integer from 1"),
        ({}, {"prompt": "x"}, "parameter 'prompt' is none"),
        ({"prompt": "word " * 600}, {}, "maximum context length is 500 tokens"),
        ({"sampling_parameters": "{"}, {}, "'sampling_parameters' is not JSON"),
        ({"sampling_parameters": "[]"}, {}, "must be a JSON object"),
        ({"image": "x"}, {}, "input 'image' is none of text_input"),
    ],
)
def test_an_error_is_an_answer_and_ends_nothing(
    client: triton.InferenceServerClient, given: dict[str, str], parameters: dict[str, Any], words: str
) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(MODEL, inputs(**given), parameters=parameters)
        result, error = answers.get(timeout=60)
        client.async_stream_infer(MODEL, inputs(), parameters=GREEDY)
        assert len(read(answers)) > 10
    finally:
        client.stop_stream()
    assert result is None
    assert words in str(error)


def test_inputs_that_are_wrong_are_named(client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    two = triton.InferInput("text_input", [2], "BYTES")
    two.set_data_from_numpy(np.array([b"a", b"b"], dtype=np.object_))
    wrong = tensor("stream", "BYTES", b"yes")
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        for given, words in (
            ([two], "'text_input' must be BYTES with one element"),
            ([tensor("stream", "BOOL", True)], "input 'text_input' is missing"),
            ([tensor("text_input", "BYTES", b"\xff")], "is not UTF-8"),
            ([tensor("text_input", "BYTES", b"a"), wrong], "'stream' must be BOOL"),
            ([*inputs(), tensor("exclude_input_in_output", "BOOL", False)], "never begins with the prompt"),
        ):
            client.async_stream_infer(MODEL, given)
            assert words in str(answers.get(timeout=60)[1])
    finally:
        client.stop_stream()


def test_a_call_that_is_cancelled_frees_its_sequences(server: PodProcess, client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    endless = {**GREEDY, "max_tokens": 450, "n": 4}
    client.async_stream_infer(MODEL, inputs(), parameters=endless)
    answers.get(timeout=60)
    before = cancelled(server)
    assert in_flight(server) == 1
    client.stop_stream(cancel_requests=True)
    until(lambda: in_flight(server) == 0)
    assert cancelled(server) == before + 4
    until(lambda: (now := server.report()["generation"])["blocksFree"] == now["blocks"])


def test_a_timeout_of_a_request_is_its_own(client: triton.InferenceServerClient) -> None:
    answers: Answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(
            MODEL, inputs(stream=False), timeout=50_000, parameters={**GREEDY, "max_tokens": 450, "n": 16}
        )
        _, error = answers.get(timeout=60)
        client.async_stream_infer(MODEL, inputs(), parameters=GREEDY)
        assert len(read(answers)) > 10
    finally:
        client.stop_stream()
    assert "time" in str(error) or "deadline" in str(error)


async def test_the_client_that_does_not_wait_streams_too(server: PodProcess) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": MODEL, "inputs": inputs(of=triton_aio), "request_id": "1", "parameters": GREEDY}

    text = ""
    async with triton_aio.InferenceServerClient(server.grpc) as client:
        async with asyncio.timeout(60):
            async for result, error in client.stream_infer(requests()):
                assert error is None
                text += texts_of(result)[0]
    assert text == over_http(server)


def test_one_answer_to_one_request_is_not_served_and_says_what_is(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="ModelStreamInfer"):
        client.infer(MODEL, inputs())


def test_metadata_says_what_is_taken_and_made(client: triton.InferenceServerClient, server: PodProcess) -> None:
    metadata = client.get_model_metadata(MODEL)
    assert [(each.name, each.datatype, list(each.shape)) for each in metadata.inputs] == [
        ("text_input", "BYTES", [1]),
        ("stream", "BOOL", [1]),
        ("exclude_input_in_output", "BOOL", [1]),
        ("sampling_parameters", "BYTES", [1]),
    ]
    assert [(each.name, each.datatype, list(each.shape)) for each in metadata.outputs] == [
        ("text_output", "BYTES", [-1])
    ]
    over_rest = server.client.get(f"{server.url}/v2/models/{MODEL}").json()
    assert [each["name"] for each in over_rest["inputs"]] == [each.name for each in metadata.inputs]
