"""The record beside a program: what it may say, and that it must speak of what is there."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.export import Size, export_model, rewrite
from headway_runtime.prepare import inspection, repack
from headway_runtime.prepare.beside import golden, record
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.report import describe


def tensor(dtype: str = "float32", shape: tuple[int, ...] = (2,), data: bytes = bytes(8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data": base64.b64encode(data).decode()}


def parse(**fields: Any) -> record.Record:
    return record.parse(json.dumps({"version": 1, **fields}).encode())


WHOLE: dict[str, Any] = {
    "torch": "2.15.0",
    "device": "cpu",
    "dimensions": [{"input": "x", "axis": 0, "name": "batch"}],
    "outputs": ["score"],
    "padding": {"x": 0.5},
    "task": "image-classification",
    "labels": ["cat", "dog", ""],
    "preprocessing": {"size": 224, "mean": "0.485,0.456,0.406", "center-crop": True},
    "tolerance": {"rtol": 0.01, "atol": 0},
    "samples": [{"inputs": [tensor()], "outputs": [tensor("bool", (8,))]}],
}


def test_every_field_arrives() -> None:
    found = parse(**WHOLE)
    assert (found.dimensions, found.outputs, found.task) == ((("x", 0, "batch"),), ("score",), WHOLE["task"])
    assert found.facts() == {
        **{k: WHOLE[k] for k in ("padding", "task", "labels", "preprocessing", "device")},
        "tolerance": {"rtol": 0.01, "atol": 0.0},
    }
    assert parse().facts() == {}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("", {"version": 2}),
        ("", {"version": True, "x": 1}),
        ("", {"unknown": 1}),
        ("$.torch", {"torch": 2.15}),
        ("$.device", {"device": "cpu\n"}),
        ("$.task", {"task": "Text Classification"}),
        ("$.labels", {"labels": ["a\tb"]}),
        ("$.labels", {"labels": ["x"] * 100_001}),
        ("$.labels", {"labels": {"0": "a"}}),
        ("$.padding", {"padding": {"x": "0"}}),
        ("$.padding", {"padding": {"x": None}}),
        ("$.padding", {"padding": {"": 0}}),
        ("$.preprocessing", {"preprocessing": {"mean": [0.5]}}),
        ("$.preprocessing", {"preprocessing": {"a": "x" * 1025}}),
        ("$.preprocessing", {"preprocessing": {f"k{i}": 1 for i in range(257)}}),
        ("$.tolerance", {"tolerance": {"rtol": -1}}),
        ("$.tolerance", {"tolerance": {"rtol": 1001}}),
        ("$.tolerance", {"tolerance": {"ulp": 1}}),
        ("$.outputs", {"outputs": [1]}),
        ("$.outputs", {"outputs": ["a"] * 4097}),
        ("$.dimensions", {"dimensions": [{"input": "x", "axis": True, "name": "batch"}]}),
        ("$.dimensions", {"dimensions": [{"input": "x", "axis": 0, "name": "Batch"}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor()]}]}),
        ("$.samples[0]", {"samples": [{"inputs": {}, "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor(data=bytes(7))], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor(shape=(-2, -1))], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor("complex64", (1,))], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [{**tensor(), "dtype": ["float32"]}], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [{**tensor(), "data": "AAAA====AAAA"}], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [{**tensor(), "data": "\u00e4" * 12}], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor(shape=(2,) + (1,) * 16)], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor("bool", (1,), b"\2")], "outputs": []}]}),
        ("$.samples[0]", {"samples": [{"inputs": [tensor(shape=(2**40, 2**40), data=b"")], "outputs": []}]}),
    ],
)
def test_what_it_may_not_say_is_refused_with_its_place(path: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        parse(**fields)
    assert refused.value.rule in ("record.form", "name.printable")
    assert refused.value.path == path


def test_samples_are_bounded_together() -> None:
    one = {"inputs": [tensor("uint8", (golden.MAX_BYTES // 2,), bytes(golden.MAX_BYTES // 2))], "outputs": []}
    assert len(parse(samples=[one, one]).samples) == 2
    with pytest.raises(Refusal, match="golden samples of more than"):
        parse(samples=[one, one, {"inputs": [tensor("uint8", (1,), b"\0")], "outputs": []}])


class Twice(torch.nn.Module):
    """x [batch, 3] -> 2x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "twice.pt2"
    export_model(Twice().eval(), {"x": torch.ones(2, 3)}, path=path, dynamic_shapes={"x": {0: Size("batch", 1, 8)}})
    return path


def refused(artifact: Path, tmp_path: Path, records: dict[str, bytes]) -> Refusal:
    target = tmp_path / "altered.pt2"
    rewrite.with_records(artifact, target, records)
    with pytest.raises(Refusal) as found:
        inspection.inspect(str(target))
    return found.value


SAMPLE = {"inputs": [tensor("float32", (1, 3), bytes(12))], "outputs": [tensor("float32", (1, 3), bytes(12))]}


@pytest.mark.parametrize(
    ("detail", "fields"),
    [
        ("padding of ['y']", {"padding": {"y": 0}}),
        ("2 output names for 1 outputs", {"outputs": ["a", "b"]}),
        ("axis 0 of 'y'", {"dimensions": [{"input": "y", "axis": 0, "name": "batch"}]}),
        ("axis 5 of 'x'", {"dimensions": [{"input": "x", "axis": 5, "name": "batch"}]}),
        ("names a fixed size", {"dimensions": [{"input": "x", "axis": 1, "name": "width"}]}),
        ("a sample of 2 inputs", {"samples": [{**SAMPLE, "inputs": SAMPLE["inputs"] * 2}]}),
        ("a sample of 2 outputs", {"samples": [{**SAMPLE, "outputs": SAMPLE["outputs"] * 2}]}),
        ("in a sample int64", {"samples": [{**SAMPLE, "inputs": [tensor("int64", (1, 3), bytes(24))]}]}),
        ("in a sample float32 [3]", {"samples": [{**SAMPLE, "outputs": [tensor("float32", (3,), bytes(12))]}]}),
        ("in a sample float32 [1, 4]", {"samples": [{**SAMPLE, "inputs": [tensor("float32", (1, 4), bytes(16))]}]}),
    ],
)
def test_a_record_that_speaks_of_what_is_not_there_is_refused(
    artifact: Path, tmp_path: Path, detail: str, fields: dict[str, Any]
) -> None:
    found = refused(artifact, tmp_path, {record.NAME: json.dumps({"version": 1, **fields}).encode()})
    assert (found.rule, found.record) == ("record.form", record.NAME)
    assert detail in found.detail


def test_a_tokenizer_is_json_and_is_kept_as_it_is(artifact: Path, tmp_path: Path) -> None:
    found = refused(artifact, tmp_path, {record.TOKENIZER: b'{"a": 1, "a": 2}'})
    assert (found.rule, found.record) == ("json.duplicate", record.TOKENIZER)
    text = b'{ "model": {"vocab": {"caf\xc3\xa9": 0}} }\n'
    target = tmp_path / "with.pt2"
    rewrite.with_records(artifact, target, {record.TOKENIZER: text})
    folder = tmp_path / "prepared"
    folder.mkdir()
    repack.repack(inspection.inspect(str(target)), target, folder)
    assert (folder / repack.TOKENIZER).read_bytes() == text
    assert f"a tokenizer of {len(text)} bytes" in describe(target).to_text()


def test_the_facts_are_in_the_prepared_program(artifact: Path, tmp_path: Path) -> None:
    target = tmp_path / "facts.pt2"
    fields = {"version": 1, "task": "doubling", "labels": ["a"], "padding": {"x": -1}}
    rewrite.with_records(artifact, target, {record.NAME: json.dumps(fields).encode()})
    document = inspection.inspect(str(target)).document
    assert document["facts"] == {"task": "doubling", "labels": ["a"], "padding": {"x": -1}}
