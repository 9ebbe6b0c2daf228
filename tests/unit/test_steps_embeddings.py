"""/v1/embeddings as OpenAI's own client asks for it."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from openai import OpenAI

from tests.unit.pod_process import REVISION, PodProcess, pod
from tests.unit.small_models import Encoder, export, prepare
from tests.unit.steps_models import WORDS, encoder, expected, ids_of, prepared

TEXTS = ["the cat sat", "a dog ran under the red mat", "cat"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("embeddings")
    with pod(folder, prepared(encoder(folder))) as process:
        process.wait_for_phase()
        yield process


@pytest.fixture
def client(serving: PodProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def wanted(text: str) -> Any:
    return pytest.approx(expected(text)["embedding"][0].tolist(), abs=1e-6)


def test_texts_are_embedded_in_their_order_and_counted(client: OpenAI) -> None:
    answer = client.embeddings.create(model="encoder", input=TEXTS)
    assert [each.index for each in answer.data] == [0, 1, 2]
    for text, each in zip(TEXTS, answer.data, strict=True):
        assert each.embedding == wanted(text)
    tokens = sum(len(ids_of(text)) for text in TEXTS)
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("encoder", tokens, tokens)


def test_one_text_and_its_tokens_are_the_same(client: OpenAI) -> None:
    for given in (TEXTS[0], ids_of(TEXTS[0]), [ids_of(TEXTS[0])]):
        (each,) = client.embeddings.create(model="encoder", input=given).data
        assert each.embedding == wanted(TEXTS[0])


def test_both_formats_are_the_same_numbers(serving: PodProcess) -> None:
    found = {
        form: serving.client.post(
            f"{serving.url}/v1/embeddings", json={"model": "encoder", "input": "cat", "encoding_format": form}
        )
        for form in ("float", "base64")
    }
    assert found["float"].headers["x-headway-revision"] == REVISION
    plain = found["float"].json()["data"][0]["embedding"]
    coded = found["base64"].json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(coded), "<f4").tolist() == pytest.approx(plain, abs=1e-7)


def test_many_texts_are_more_rows_than_a_run_may_have(client: OpenAI) -> None:
    many = [" ".join(["cat"] * (1 + row % 30)) for row in range(700)]
    answer = client.embeddings.create(model="encoder", input=many)
    for row in (0, 29, 350, 699):
        assert answer.data[row].embedding == wanted(many[row])


@pytest.mark.parametrize(
    ("body", "status", "parameter", "words"),
    [
        ({"model": "other"}, 404, None, "the model 'other' is not served here, only 'encoder'"),
        ({"dimensions": 4}, 400, "dimensions", "this model's embeddings have 8, and are not shortened"),
        ({"encoding_format": "hex"}, 400, "encoding_format", "float or base64"),
        ({"input": []}, 400, "input", "a text, a list of texts"),
        ({"input": {"text": "cat"}}, 400, "input", "a text, a list of texts"),
        ({"input": ["cat", 7]}, 400, "input", "input 0 must be a text, or token ids from 0 to 15"),
        ({"input": [[]]}, 400, "input", "input 0 must be"),
        ({"input": [[2, len(WORDS)]]}, 400, "input", "input 0 must be"),
        ({"input": [[2] * 33]}, 400, "input", "input 0 has 33 tokens; at most 32 are taken"),
        ({"input": ["cat"] * 2049}, 400, "input", "2049 inputs; at most 2048"),
        ({"input": " ".join(["cat"] * 40)}, 400, None, "text 0: 42 tokens; at most 32 are taken"),
    ],
)
def test_errors_have_openais_shape(
    serving: PodProcess, body: dict[str, Any], status: int, parameter: str | None, words: str
) -> None:
    answer = serving.client.post(f"{serving.url}/v1/embeddings", json={"model": "encoder", "input": "cat", **body})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert words in error["message"]
    assert (error["type"], error["param"]) == ("invalid_request_error", parameter)
    assert error["code"] == ("model_not_found" if status == 404 else None)


def test_openais_client_understands_them(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.embeddings.create(model="other", input="cat")
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused_too:
        client.embeddings.create(model="encoder", input="cat", dimensions=4)
    assert refused_too.value.param == "dimensions"


def test_a_body_that_is_no_json_is_told(serving: PodProcess) -> None:
    answer = serving.client.post(f"{serving.url}/v1/embeddings", content=b"{")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_it_is_documented(serving: PodProcess) -> None:
    paths = serving.client.get(f"{serving.url}/openapi.json").json()["paths"]
    content = paths["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]
    assert content["schema"]["required"] == ["model", "input"]
    assert serving.client.post(f"{serving.url}/v1/embeddings", json=content["example"]).status_code == 200


def test_a_model_without_texts_says_so(tmp_path: Path) -> None:
    with pod(tmp_path, prepare(export(Encoder, tmp_path / "m.pt2"), tmp_path / "model")) as plain:
        plain.wait_for_phase()
        answer = plain.client.post(f"{plain.url}/v1/embeddings", json={"model": "encoder", "input": "cat"})
    assert answer.status_code == 400
    assert "this model takes no texts" in answer.json()["error"]["message"]


def test_expected_is_what_the_module_says() -> None:
    assert torch.allclose(expected("cat")["embedding"].norm(), torch.tensor(1.0))
