"""The examples of texts and of images: their scripts run, and a real pod answers as the libraries do by themselves."""

import base64
import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from openai import OpenAI
from PIL import Image

from tests.unit.pod_process import PodProcess, pod, tensor
from tests.unit.steps_models import prepared

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PHOTO = Path(matplotlib.get_data_path()) / "sample_data/grace_hopper.jpg"
SENTENCES = [
    "A cat sits on the mat.",
    "There is a feline on the rug, and it does not look as if it wanted to get up again soon.",
    "The stock market fell by three percent.",
]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / "export.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def served(folder: Path, name: str, **batching: Any) -> Iterator[PodProcess]:
    file = folder / f"{name}.pt2"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, EXAMPLES / name / "export.py", file], check=True, env=environment, timeout=300)
    with pod(folder, prepared(file), batching={"shapeBuckets": batching}) as process:
        process.wait_for_phase(seconds=180)
        yield process


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    yield from served(tmp_path_factory.mktemp("minilm"), "minilm", batch=[1, 4], sequence=[8, 32])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    yield from served(tmp_path_factory.mktemp("efficientnet"), "efficientnet", batch=[1, 2])


@pytest.fixture(scope="module")
def embeddings() -> torch.Tensor:
    """What transformers says, each sentence by itself: [3, 384]."""
    from transformers import AutoTokenizer

    minilm = script("minilm")
    tokenizer = AutoTokenizer.from_pretrained(minilm.model_directory(), local_files_only=True)
    module = minilm.encoder(1)
    rows = []
    for sentence in SENTENCES:
        given = tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            rows.append(module(given["input_ids"], given["attention_mask"])[0])
    return torch.stack(rows)


def test_texts_are_embedded_as_transformers_does(encoder: PodProcess, embeddings: torch.Tensor) -> None:
    body = {"inputs": [tensor("text", "BYTES", [3], SENTENCES)]}
    (output,) = encoder.client.post(encoder.infer, json=body).json()["outputs"]
    found = torch.tensor(output["data"]).reshape(output["shape"])
    assert torch.allclose(found, embeddings, atol=1e-5)


def test_openais_client_finds_the_sentence_that_means_the_same(encoder: PodProcess, embeddings: torch.Tensor) -> None:
    with OpenAI(base_url=f"{encoder.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model="encoder", input=SENTENCES)
    vectors = torch.tensor([each.embedding for each in answer.data])
    assert torch.allclose(vectors, embeddings, atol=1e-5)
    cat, feline, market = vectors
    assert cat @ feline > cat @ market + 0.2


@pytest.fixture(scope="module")
def logits() -> dict[str, torch.Tensor]:
    """What torchvision's transforms and the module say of the photo, and of it as PNG: [1000]."""
    from torchvision import transforms

    efficientnet = script("efficientnet")
    resize = transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC)
    given = transforms.Compose(
        [
            resize,
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([127 / 255] * 3, [128 / 255] * 3),
        ]
    )
    module = efficientnet.classifier()
    with torch.no_grad(), Image.open(PHOTO) as photo:
        return {"photo": module(given(photo)[None])[0], "small": module(given(photo.resize((300, 280)))[None])[0]}


def encoded(form: str, size: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    with Image.open(PHOTO) as photo:
        (photo.resize(size) if size else photo).save(out, form, lossless=True)
    return out.getvalue()


def ask(classifier: PodProcess, *images: bytes) -> dict[str, Any]:
    """In the binary form, as a file has them."""
    with triton.InferenceServerClient(classifier.url.removeprefix("http://")) as client:
        given = triton.InferInput("image", [len(images)], "BYTES")
        given.set_data_from_numpy(np.array([*images, None], dtype=object)[:-1])
        answer = client.infer("encoder", [given])
        return {name: answer.as_numpy(name) for name in ("logits", "label", "score")}


def test_photos_are_classified_as_torchvision_and_the_module_do(
    classifier: PodProcess, logits: dict[str, torch.Tensor]
) -> None:
    found = ask(classifier, PHOTO.read_bytes(), encoded("PNG", (300, 280)), encoded("WEBP", (300, 280)))
    names = script("efficientnet").labels()
    for row, name in enumerate(("photo", "small", "small")):
        assert np.allclose(found["logits"][row], logits[name].numpy(), atol=2e-3), name
        best = logits[name].softmax(0).topk(5)
        assert found["score"][row] == pytest.approx(best.values.tolist(), abs=1e-3)
        assert [label.decode() for label in found["label"][row]] == [names[at] for at in best.indices]
    assert b"military uniform" in found["label"][0]


def test_in_json_a_photo_is_base64(classifier: PodProcess) -> None:
    data = base64.b64encode(PHOTO.read_bytes()).decode()
    body = {"inputs": [tensor("image", "BYTES", [1], [data])], "outputs": [{"name": "label"}]}
    (output,) = classifier.client.post(classifier.infer, json=body).json()["outputs"]
    assert "military uniform" in output["data"]


def test_a_file_that_is_no_image_is_told_by_its_place(classifier: PodProcess) -> None:
    good = base64.b64encode(encoded("PNG", (64, 64))).decode()
    for bad, words in (
        ("hello", "image 1 is no JPEG, PNG or WebP"),
        (base64.b64encode(PHOTO.read_bytes()[:5000]).decode(), "image 1 cannot be decoded"),
    ):
        body = {"inputs": [tensor("image", "BYTES", [2], [good, bad])]}
        answer = classifier.client.post(classifier.infer, json=body)
        assert answer.status_code == 400, answer.text
        assert words in answer.json()["error"]
