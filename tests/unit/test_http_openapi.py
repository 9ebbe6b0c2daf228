"""The OpenAPI document is true: its example is answered, and what it says of answers is what comes."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from headway_runtime.program import load_program
from headway_runtime.protocols.http.page import page
from torch.export import Dim

from tests.unit.http_server import INFER, HttpServer, http_server
from tests.unit.pod_process import MODEL, REVISION, tensor
from tests.unit.small_models import Encoder, Scaled, export, prepare


class Picture(torch.nn.Module):
    """image [batch, 3, 64, 64], flags [batch, 2] -> y [batch], by many numbers, and by halves."""

    def forward(self, image: torch.Tensor, flags: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        means = image.mean((1, 2, 3)) + flags.float().sum(1)
        return means, means.half()


def pictures(file: Path) -> Path:
    example = (torch.ones(2, 3, 64, 64), torch.ones(2, 2, dtype=torch.bool))
    batch = Dim("batch", min=1, max=64)
    program = torch.export.export(Picture().eval(), example, dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, file)
    return file


@pytest.fixture(scope="module", params=["encoder", "scaled", "pictures"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("openapi")
    file = folder / "model.pt2"
    made = {"encoder": lambda: export(Encoder, file), "scaled": lambda: export(Scaled, file)}
    prepared = prepare(made.get(request.param, lambda: pictures(file))(), folder / "model")
    with http_server(load_program(prepared, dimension_names={}), batch=[1, 8]) as started:
        yield started


def described(server: HttpServer) -> dict[str, Any]:
    answer = server.client.get(f"{server.url}/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json()["paths"][INFER]["post"])


def test_the_documented_example_is_answered(server: HttpServer) -> None:
    example = described(server)["requestBody"]["content"]["application/json"]["example"]
    names = [output["name"] for output in server.pod.serving()[0].describe()["outputs"] if output["datatype"] != "FP16"]
    for path in (INFER, f"/v2/models/{MODEL}/versions/{REVISION}/infer"):
        asked = {**example, "outputs": [{"name": name} for name in names]}
        answer = server.client.post(server.url + path, json=asked)
        assert answer.status_code == 200, answer.text
        documented = described(server)["responses"]["200"]
        for header in ("x-headway-revision", "x-headway-queue-ms", "x-headway-batch-size"):
            assert header in documented["headers"]
            assert header in answer.headers
        schema = documented["content"]["application/json"]["schema"]
        assert set(schema["required"]) <= set(answer.json())
        properties = schema["properties"]["outputs"]["items"]["properties"]
        for output in answer.json()["outputs"]:
            assert set(output) <= set(properties)
            assert output["name"] in properties["name"]["enum"]
            assert output["datatype"] in properties["datatype"]["enum"]


def test_every_input_and_output_stands_in_the_description(server: HttpServer) -> None:
    metadata = server.client.get(f"{server.url}/v2/models/{MODEL}").json()
    text = described(server)["description"]
    for kind in ("input", "output"):
        for spec in metadata[f"{kind}s"]:
            assert f"{kind} `{spec['name']}`: {spec['datatype']} {spec['shape']}" in text
    assert "inference-header-content-length" in text


def test_refusals_are_documented_as_they_come(server: HttpServer) -> None:
    answer = server.client.post(server.infer, json={"inputs": []})
    documented = described(server)["responses"][str(answer.status_code)]
    assert set(documented["content"]["application/json"]["schema"]["required"]) == set(answer.json())


class Read(HTMLParser):
    """The text of a page, and every address that a browser would go to for it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.addresses = "", set[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "action", "srcset"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_says_what_the_document_says_and_needs_nothing_else(server: HttpServer) -> None:
    answer = server.client.get(f"{server.url}/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    found = Read(answer.text)
    assert found.addresses == ["openapi.json"]
    assert not found.tags & {"script", "link", "img", "iframe"}
    assert "@import" not in found.text
    assert "url(" not in found.text
    post = described(server)
    assert post["description"] in found.text
    assert json.dumps(post["requestBody"]["content"]["application/json"]["example"]) in found.text
    for path in server.client.get(f"{server.url}/openapi.json").json()["paths"]:
        assert path in found.text
    assert server.client.get(f"{server.url}/redoc").status_code == 404


def test_what_this_model_does_not_do_is_not_described(server: HttpServer) -> None:
    text = server.client.get(f"{server.url}/openapi.json").text
    assert "/v1/embeddings" not in text
    assert "422" not in text
    assert "$ref" not in text
    assert server.client.get(f"{server.url}/v2/models/other/config").status_code == 404
    assert "404" in json.loads(text)["paths"]["/v2/models/{model}/config"]["get"]["responses"]


def test_who_looks_in_the_wrong_place_is_told_of_the_page(server: HttpServer) -> None:
    answer = server.client.get(server.url)
    assert answer.status_code == 404
    assert answer.json() == {"error": "GET /: Not Found; /docs says what is"}


def test_a_name_is_no_part_of_the_page() -> None:
    name = "<script>alert(1)</script>"
    operation: dict[str, Any] = {
        "summary": name,
        "description": name,
        "parameters": [{"name": name, "in": name, "description": name}],
    }
    body = {"content": {name: {"example": name, "schema": {name: name}}}}
    operation |= {"requestBody": body, "responses": {name: {"description": name}}}
    found = Read(page({"info": {"title": name, "version": name}, "paths": {name: {"get": operation}}}))
    assert "script" not in found.tags
    assert found.text.count(name) == 16


def test_the_pages_are_there_also_before_a_model_is(server: HttpServer) -> None:
    for path in ("/docs", "/openapi.json"):
        assert {server.client.request(method, server.url + path).status_code for method in ("GET", "HEAD")} == {200}
    with http_server(None) as loading:
        assert "not loaded yet" in loading.client.get(f"{loading.url}/docs").text
        paths = loading.client.get(f"{loading.url}/openapi.json").json()["paths"]
        assert "not loaded yet" in paths[INFER]["post"]["description"]
        assert "/v2/models/{model}/config" in paths


def test_halves_travel_in_binary_only_and_json_says_so(server: HttpServer) -> None:
    half = [o["name"] for o in server.pod.serving()[0].describe()["outputs"] if o["datatype"] == "FP16"]
    if not half:
        return
    assert f"output `{half[0]}`: FP16 [-1], in binary only" in described(server)["description"]
    specs = server.client.get(f"{server.url}/v2/models/{MODEL}").json()["inputs"]
    values = (np.ones((1, 3, 64, 64)), np.ones((1, 2), dtype=np.bool_))
    inputs = [
        tensor(spec["name"], spec["datatype"], list(value.shape), value.tolist())
        for spec, value in zip(specs, values, strict=True)
    ]
    before = len(server.runs)
    answer = server.client.post(server.infer, json={"inputs": inputs})
    assert answer.status_code == 400
    assert f"output {half[0]!r}: FP16 cannot be written in JSON" in answer.json()["error"]
    assert len(server.runs) == before, "it was refused before it cost anything"
    wanted = [{"name": half[0], "parameters": {"binary_data": True}}]
    answer = server.client.post(server.infer, json={"inputs": inputs, "outputs": wanted})
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["inference-header-content-length"])
    assert np.frombuffer(answer.content[length:], dtype=np.float16).tolist() == [3.0]
