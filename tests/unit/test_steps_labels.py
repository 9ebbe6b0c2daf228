"""Names of classes in answers: as the record declares them, and as Triton's clients ask."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from headway_runtime.serving.steps.labels import LabelsStep
from headway_runtime.serving.values import BytesArray, Call, Given, Output, Reply

from tests.unit.pod_process import PodProcess, pod, tensor
from tests.unit.steps_models import LABELS, encoder, expected, prepared

TEXTS = ["the cat sat", "a dog ran under the red mat"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("labels")
    with pod(folder, prepared(encoder(folder))) as process:
        process.wait_for_phase()
        yield process


def scores(text: str) -> torch.Tensor:
    return expected(text)["scores"][0]


def best(text: str, count: int) -> list[int]:
    return scores(text).topk(count).indices.tolist()


def ask(serving: PodProcess, *wanted: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"inputs": [tensor("text", "BYTES", [2], TEXTS)]}
    answer = serving.client.post(serving.infer, json={**body, "outputs": list(wanted)} if wanted else body)
    assert answer.status_code == 200, answer.text
    return {output["name"]: output for output in answer.json()["outputs"]}


def test_declared_labels_come_with_every_answer(serving: PodProcess) -> None:
    found = ask(serving)
    assert list(found) == ["embedding", "scores", "label", "score"]
    assert (found["label"]["datatype"], found["label"]["shape"]) == ("BYTES", [2, 2])
    assert found["label"]["data"] == [LABELS[at] for text in TEXTS for at in best(text, 2)]
    probabilities = torch.stack([scores(text).softmax(0).topk(2).values for text in TEXTS])
    assert torch.allclose(torch.tensor(found["score"]["data"]).reshape(2, 2), probabilities, atol=1e-6)


def test_a_client_gets_what_it_names_in_its_order(serving: PodProcess) -> None:
    assert list(ask(serving, {"name": "label"})) == ["label"]
    assert list(ask(serving, {"name": "score"}, {"name": "embedding"})) == ["score", "embedding"]
    found = ask(serving, {"name": "scores"}, {"name": "label"})
    assert (list(found), found["scores"]["datatype"]) == (["scores", "label"], "FP32")


def test_an_output_is_classified_when_a_client_asks(serving: PodProcess) -> None:
    found = ask(serving, {"name": "scores", "parameters": {"classification": 3}})["scores"]
    assert (found["datatype"], found["shape"]) == ("BYTES", [2, 3])
    first, *_ = found["data"]
    value, at, label = first.split(":")
    assert (int(at), label) == (best(TEXTS[0], 1)[0], LABELS[best(TEXTS[0], 1)[0]])
    assert float(value) == pytest.approx(float(scores(TEXTS[0]).max()), abs=1e-5)


def test_tritonclient_classifies_over_http_in_binary(serving: PodProcess) -> None:
    with triton_http.InferenceServerClient(serving.url.removeprefix("http://")) as client:
        given = triton_http.InferInput("text", [2], "BYTES")
        given.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=object))
        answer = client.infer("encoder", [given], outputs=[triton_http.InferRequestedOutput("scores", class_count=1)])
    check(answer.as_numpy("scores"))


def test_tritonclient_classifies_over_grpc(serving: PodProcess) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{serving.grpc_port}") as client:
        given = triton_grpc.InferInput("text", [2], "BYTES")
        given.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=object))
        wanted = [triton_grpc.InferRequestedOutput("scores", class_count=1), triton_grpc.InferRequestedOutput("label")]
        answer = client.infer("encoder", [given], outputs=wanted)
        check(answer.as_numpy("scores"))
        assert answer.as_numpy("label").reshape(-1).tolist() == [
            LABELS[at].encode() for text in TEXTS for at in best(text, 2)
        ]
        metadata = client.get_model_metadata("encoder")
    assert [(i.name, i.datatype, list(i.shape)) for i in metadata.inputs] == [("text", "BYTES", [-1])]
    assert [o.name for o in metadata.outputs] == ["embedding", "scores", "label", "score"]


def check(found: "np.ndarray[Any, Any]") -> None:
    assert found.shape == (2, 1)
    for text, (item,) in zip(TEXTS, found.tolist(), strict=True):
        assert item.decode().split(":")[1:] == [str(best(text, 1)[0]), LABELS[best(text, 1)[0]]]


def classified(step: LabelsStep, output: Output, most: int) -> Reply | Exception | None:
    told: list[Any] = []
    given = Given({}, (output.name,), {output.name: most})
    _, call = step.call(given, Call(0.0, lambda: False, told.append))
    call.done(Reply((output,)))
    return told[0]  # type: ignore[no-any-return]


def test_without_labels_that_fit_a_class_is_its_index() -> None:
    step = LabelsStep(None, ("only", "two"), ("scores",))
    found = classified(step, Output("scores", "FP32", torch.tensor([[0.5, 0.25, 1.0]])), 9)
    assert isinstance(found, Reply)
    assert found.outputs[0].value == BytesArray((1, 3), (b"1.000000:2", b"0.500000:0", b"0.250000:1"))


def test_what_has_no_classes_is_told() -> None:
    step = LabelsStep(None, (), ("total",))
    found = classified(step, Output("total", "FP32", torch.tensor(1.0)), 2)
    assert "output 'total' is one number and has no classes" in str(found)
    with pytest.raises(Exception, match="output 'other' has no classes"):
        step.call(Given({}, None, {"other": 1}), Call(0.0, lambda: False, lambda _: None))


def test_a_program_without_steps_is_classified_too(tmp_path: Path) -> None:
    from tests.unit.pod_process import question
    from tests.unit.small_models import Encoder, export, prepare

    with pod(tmp_path, prepare(export(Encoder, tmp_path / "m.pt2"), tmp_path / "model")) as plain:
        plain.wait_for_phase()
        body = {**question([[1, 2]]), "outputs": [{"name": "output_0", "parameters": {"classification": 1}}]}
        names = [o["name"] for o in plain.client.get(f"{plain.url}/v2/models/encoder").json()["outputs"]]
        body["outputs"][0]["name"] = names[0]
        (found,) = plain.client.post(plain.infer, json=body).json()["outputs"]
    assert (found["datatype"], found["shape"]) == ("BYTES", [1, 1])
    assert found["data"][0].count(":") == 1
