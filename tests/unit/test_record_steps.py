"""The record's `steps`: what they may say, and that they fit the programs of the archive. No tensor is needed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.export import ExportError, Image, Labels, Size, Steps, Text, export_model, rewrite
from headway_runtime.prepare import inspection, wiring
from headway_runtime.prepare.beside import record, steps
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.report import describe

from tests.unit.steps_models import encoder

TEXT = {"ids": "ids"}
IMAGE = {"tensor": "pixels"}
RAW = {"tensor": "raw", "layout": "NHWC"}
LABELS = {"output": "scores"}


def parse(value: Any) -> record.Record:
    return record.parse(json.dumps({"version": 1, "steps": value}).encode())


def test_every_step_arrives_and_is_written_as_it_was_read() -> None:
    whole = Steps(
        text=Text(ids="ids", input="words", mask="mask", types="types", max_length=128, truncate=True),
        image=Image(
            tensor="pixels", input="photo", resize=256, crop=(224, 240), interpolation="bicubic", channels="L",
            layout="NHWC", scale=0.5, mean=(0.1,), std=(2.0,),
        ),
        preprocess="before",
        postprocess="after",
        labels=Labels("scores", top=5, softmax=True, label="name", score="weight"),
    )  # fmt: skip
    document = whole.document()
    assert document["text"]["maxLength"] == 128
    assert document["image"]["crop"] == [224, 240]
    assert steps.parse(json.loads(json.dumps(document))) == whole
    assert parse(document).steps == document
    assert steps.of_document({"steps": document}) == whole
    assert steps.of_document({}) == Steps()
    assert Steps(text=Text(ids="ids")).document() == {"text": {"ids": "ids"}}


def test_what_is_left_out_has_a_default() -> None:
    found = steps.parse({"text": TEXT, "image": IMAGE, "labels": LABELS})
    assert (found.text, found.image, found.labels) == (Text(ids="ids"), Image(tensor="pixels"), Labels("scores"))
    assert found.image is not None
    assert found.image.size is None
    assert Image("p", resize=(2, 3)).size == (2, 3)
    assert Image("p", resize=256, crop=(4, 5)).size == (4, 5)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.steps", {}),
        ("$.steps", []),
        ("$.steps", {"audio": {}}),
        ("$.steps.preprocess", {"preprocess": 1}),
        ("$.steps.postprocess", {"postprocess": ""}),
        ("$.steps.text", {"text": {}}),
        ("$.steps.text", {"text": {**TEXT, "lower": True}}),
        ("$.steps.text", {"text": {**TEXT, "mask": "ids"}}),
        ("$.steps.text.ids", {"text": {"ids": "a\nb"}}),
        ("$.steps.text.input", {"text": {**TEXT, "input": None}}),
        ("$.steps.text.mask", {"text": {**TEXT, "mask": 1}}),
        ("$.steps.text.maxLength", {"text": {**TEXT, "maxLength": 0}}),
        ("$.steps.text.maxLength", {"text": {**TEXT, "maxLength": 1.5}}),
        ("$.steps.text.maxLength", {"text": {**TEXT, "maxLength": True}}),
        ("$.steps.text.truncate", {"text": {**TEXT, "truncate": 1}}),
        ("$.steps.image", {"image": {}}),
        ("$.steps.image.resize", {"image": {**IMAGE, "resize": [224]}}),
        ("$.steps.image.resize", {"image": {**IMAGE, "resize": 4097}}),
        ("$.steps.image.crop", {"image": {**IMAGE, "crop": 224}}),
        ("$.steps.image.crop", {"image": {**IMAGE, "crop": [0, 1]}}),
        ("$.steps.image.interpolation", {"image": {**IMAGE, "interpolation": "lanczos"}}),
        ("$.steps.image.channels", {"image": {**IMAGE, "channels": ["RGB"]}}),
        ("$.steps.image.layout", {"image": {**IMAGE, "layout": "CHWN"}}),
        ("$.steps.image.scale", {"image": {**IMAGE, "scale": 0}}),
        ("$.steps.image.scale", {"image": {**IMAGE, "scale": True}}),
        ("$.steps.image.mean", {"image": {**IMAGE, "mean": [1, 2]}}),
        ("$.steps.image.mean", {"image": {**IMAGE, "mean": [1, 2, 1e9]}}),
        ("$.steps.image.std", {"image": {**IMAGE, "std": [0, 1, 1]}}),
        ("$.steps.image.std", {"image": {**IMAGE, "std": [1, 1, 1, 1, 1]}}),
        ("$.steps.labels", {"labels": {}}),
        ("$.steps.labels", {"labels": {**LABELS, "label": "x", "score": "x"}}),
        ("$.steps.labels.top", {"labels": {**LABELS, "top": 101}}),
        ("$.steps.labels.softmax", {"labels": {**LABELS, "softmax": None}}),
    ],
)
def test_what_they_may_not_say_is_refused_with_its_place(path: str, value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse(value)
    assert refused.value.rule in ("record.form", "name.printable")
    assert refused.value.path == path


def tensor(name: str, dtype: str, *shape: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


B, S = {"symbol": "s0"}, {"symbol": "s1"}
MAIN = {
    "inputs": [
        tensor("ids", "int64", B, S),
        tensor("mask", "int64", B, S),
        tensor("pixels", "float32", B, 3, 224, 224),
    ],
    "outputs": [tensor("scores", "float32", B, 3), tensor("boxes", "float32", B, 4)],
    "facts": {"labels": ["a", "b", "c"]},
}
BEFORE = {"inputs": [tensor("raw", "uint8", B, S, S, 3)], "outputs": [tensor("pixels", "float32", B, 3, 224, 224)]}
AFTER = {"inputs": [tensor("boxes", "float32", B, 4)], "outputs": [tensor("best", "float32", B, 1)]}


def check(value: dict[str, Any], *, tokenizer: bool = True, **others: dict[str, Any]) -> None:
    programs = {"before": BEFORE, "after": AFTER, **others, "model": {**MAIN, "steps": value}}
    wiring.check("model", programs, tokenizer=tokenizer)


@pytest.mark.parametrize(
    "value",
    [
        {"text": {"ids": "ids", "mask": "mask"}, "image": {"tensor": "pixels", "resize": 256, "crop": [224, 224]}},
        {"labels": {"output": "scores", "top": 3}},
        {"preprocess": "before", "postprocess": "after"},
        {"preprocess": "before", "image": {"tensor": "raw", "layout": "NHWC"}, "text": {"ids": "ids", "mask": "mask"}},
    ],
)
def test_what_fits_is_accepted(value: dict[str, Any]) -> None:
    check(value)


def altered(base: dict[str, Any], side: str, *tensors: dict[str, Any]) -> dict[str, Any]:
    return {**base, side: list(tensors)}


@pytest.mark.parametrize(
    ("path", "detail", "value", "others"),
    [
        ("$.text.ids", "no input of the request is called 'tokens'", {"text": {"ids": "tokens"}}, {}),
        ("$.text.ids", "pixels is float32 with 4 axes", {"text": {"ids": "pixels"}}, {}),
        ("$.text.mask", "not the shape of ids: 2 axes, not 4", {"text": {"ids": "ids", "mask": "pixels"}}, {}),
        ("$.text.input", "'mask' is the name of an input", {"text": {"ids": "ids", "input": "mask"}}, {}),
        ("$.image.tensor", "ids is int64; pixels are float32", {"image": {"tensor": "ids"}}, {}),
        ("$.image.tensor", "axis 1 is 1, not 3", {"image": {"tensor": "pixels", "channels": "L"}}, {}),
        ("$.image.tensor", "axis 1 is 9, not 3", {"image": {**IMAGE, "crop": [9, 9], "layout": "NHWC"}}, {}),
        ("$.image.tensor", "axis 2 is 200, not 224", {"image": {"tensor": "pixels", "resize": [200, 224]}}, {}),
        ("$.image.tensor", "raw is uint8; pixels are", {"preprocess": "before", "image": {**RAW, "scale": 1}}, {}),
        ("$.image.tensor", "no input of the request is called 'pixels'", {"preprocess": "before", "image": IMAGE}, {}),
        ("", "are both called 'x'", {"text": {**TEXT, "input": "x"}, "image": {**IMAGE, "input": "x"}}, {}),
        ("$.preprocess", "no program 'missing'; it holds after, before, model", {"preprocess": "missing"}, {}),
        ("$.preprocess", "'model' would run twice", {"preprocess": "model"}, {}),
        ("$.postprocess", "'after' is a step, and has steps of its own", {"postprocess": "after"},
         {"after": {**AFTER, "steps": {}}}),
        ("", "pixels of before is not what the next program takes: float16, not float32", {"preprocess": "before"},
         {"before": altered(BEFORE, "outputs", tensor("pixels", "float16", B, 3, 224, 224))}),
        ("", "axis 3 is 200, not 224", {"preprocess": "before"},
         {"before": altered(BEFORE, "outputs", tensor("pixels", "float32", B, 3, 224, 200))}),
        ("", "no program after before has an input 'extra'", {"preprocess": "before"},
         {"before": altered(BEFORE, "outputs", *BEFORE["outputs"], tensor("extra", "float32", B))}),
        ("", "no program after model has an input 'scores'", {"postprocess": "after"},
         {"after": altered(AFTER, "inputs", tensor("box", "float32", B, 4))}),
        ("", "two programs have an input ids, and they differ: int32, not int64", {"preprocess": "before"},
         {"before": altered(BEFORE, "inputs", tensor("ids", "int32", B, S))}),
        ("$.labels.output", "no output is called 'best'; there are scores, boxes", {"labels": {"output": "best"}}, {}),
        ("$.labels.output", "boxes has 4 classes, and there are 3 labels", {"labels": {"output": "boxes"}}, {}),
        ("$.labels.top", "the best 4 of 3 labels", {"labels": {"output": "scores", "top": 4}}, {}),
        ("$.labels.label", "'boxes' is an output of the program; call this one otherwise: label=NAME",
         {"labels": {"output": "scores", "label": "boxes"}}, {}),
    ],
)  # fmt: skip
def test_what_does_not_fit_names_the_mismatch(
    path: str, detail: str, value: dict[str, Any], others: dict[str, dict[str, Any]]
) -> None:
    with pytest.raises(Refusal) as refused:
        check(value, **others)
    assert (refused.value.rule, refused.value.reason) == ("record.steps", "UnsupportedProgram")
    assert detail in str(refused.value.detail)
    assert refused.value.path == path


def test_texts_need_a_tokenizer_and_labels_need_labels() -> None:
    with pytest.raises(Refusal, match=r"extra/tokenizer\.json"):
        check({"text": TEXT}, tokenizer=False)
    programs = {"model": {**MAIN, "facts": {}, "steps": {"labels": LABELS}}}
    with pytest.raises(Refusal, match="the record has no labels"):
        wiring.check("model", programs, tokenizer=False)


def test_a_file_is_refused_with_the_record_and_the_path(tmp_path: Path) -> None:
    source, target = encoder(tmp_path), tmp_path / "altered.pt2"
    fields = {"version": 1, "steps": {"text": {"ids": "tokens"}}}
    rewrite.with_records(source, target, {record.NAME: json.dumps(fields).encode()})
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(target))
    assert (refused.value.record, refused.value.path) == (record.NAME, "$.steps.text.ids")


def test_inspect_tells_the_steps(tmp_path: Path) -> None:
    text = describe(encoder(tmp_path)).to_text()
    assert "text: texts, tokenized to ids, mask" in text
    assert "label, score: the best 2 of scores" in text


def test_export_says_what_does_not_fit_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with pytest.raises(ExportError, match="no input of the request is called 'tokens'; there are input"):
        export_model(
            torch.nn.Linear(3, 2).eval(),
            {"input": torch.ones(2, 3)},
            path=path,
            dynamic_shapes={"input": {0: Size("batch", 1, 8)}},
            steps=Steps(text=Text(ids="tokens")),
            tokenizer=Path(encoder(tmp_path)).with_name("tokenizer.json"),
        )
    assert not path.exists()
