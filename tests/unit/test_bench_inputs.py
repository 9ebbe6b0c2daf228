"""Requests that are made up: what the model takes, how sizes are drawn, and the bytes on the wire."""

import base64
import json
import random
import struct
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from headway_runtime.bench.encode import BINARY_HEADER, binary_body, http_requests, json_body
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import address_of
from headway_runtime.bench.inputs import Maker, Request, find_ranges, read_samples
from headway_runtime.bench.model import ModelInfo, TensorInfo, from_metadata, largest_sizes, with_inspection
from headway_runtime.bench.sizes import Distribution, default_sizes, parse_sizes
from PIL import Image

ENCODER = {
    "name": "encoder",
    "versions": ["1"],
    "inputs": [
        {"name": "ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "mask", "datatype": "INT64", "shape": [-1, -1]},
    ],
}


def axes(document: dict[str, object], known: list[str]) -> list[tuple[int | str, ...]]:
    return [tensor.axes for tensor in from_metadata(document, known).inputs]


def test_axes_get_the_names_of_the_pods_buckets() -> None:
    assert axes(ENCODER, ["batch", "sequence"]) == [("batch", "sequence")] * 2
    assert axes(ENCODER, ["batch", "ids.1"]) == [("batch", "ids.1")] * 2
    assert axes(ENCODER, ["batch", "ids.1", "mask.1"]) == [("batch", "ids.1"), ("batch", "mask.1")]
    assert axes(ENCODER, []) == [("batch", "ids.1"), ("batch", "mask.1")]
    assert axes(ENCODER, ["ids.0", "ids.1"]) == [("ids.0", "ids.1"), ("mask.0", "mask.1")]
    image = {"name": "m", "versions": ["1"], "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 8]}]}
    assert axes(image, ["batch"]) == [("batch", 3, 8)]
    assert from_metadata(image, ["batch"]).batch == "batch"


def test_a_model_that_takes_images_is_sent_images_and_no_texts() -> None:
    pixels = {"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 224, 224]}
    image = {"name": "image", "datatype": "BYTES", "shape": [-1], "parameters": {"instead": [pixels]}}
    model = from_metadata({"name": "photos", "versions": ["1"], "inputs": [image]}, ["batch"])
    maker = Maker(model, {"batch": Distribution(2, 2)}, {})
    first, second = (request.arrays["image"] for request in maker.make(2))
    assert [Image.open(BytesIO(file)).size for file in first] == [(640, 480)] * 2
    assert len({*first, *second}) == 4
    (shown,) = json.loads(json_body(model, maker.smallest()).content)["inputs"]
    assert shown["shape"] == [2]
    assert {Image.open(BytesIO(base64.b64decode(file))).format for file in shown["data"]} == {"PNG"}


def test_an_inspection_names_axes_exactly_and_refuses_computed_sizes() -> None:
    model = from_metadata(ENCODER, [])
    shape = [["rows", "length"]] * 2
    program = {
        "inputs": [{"name": n, "shape": s} for n, s in zip(("ids", "mask"), shape, strict=True)],
        "dimensions": {"rows": {}, "length": {}},
        "batch": "rows",
    }
    named = with_inspection(model, program)
    assert (named.dimensions, named.batch) == (("rows", "length"), "rows")
    program["inputs"][1]["shape"] = ["rows", "8*length"]  # type: ignore[index]
    with pytest.raises(BenchError, match="8\\*length"):
        with_inspection(model, program)


def test_sizes_are_drawn_as_they_are_written() -> None:
    random_ = random.Random(0)
    name, tail = parse_sizes("sequence=8..128~30")
    drawn = [tail.draw(random_) for _ in range(4000)]
    assert name == "sequence"
    assert (min(drawn) >= 8, max(drawn) <= 128, max(drawn) > 90) == (True, True, True)
    assert 27 < sum(drawn) / len(drawn) < 33
    assert {parse_sizes("batch=1..3")[1].draw(random_) for _ in range(100)} == {1, 2, 3}
    assert parse_sizes("ids.1=7") == ("ids.1", Distribution(7, 7))
    assert [str(parse_sizes(f"a={text}")[1]) for text in ("7", "1..3", "8..128~30")] == ["7", "1..3", "8..128~30"]


@pytest.mark.parametrize("text", ["", "a", "a=", "a=b", "a=3..1", "a=1..3~9", "a=1..", "a=-1", "=3", "a=0..3~1"])
def test_sizes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(BenchError, match="--sizes"):
        parse_sizes(text)


def test_without_sizes_requests_are_single_rows_of_mostly_small_ones() -> None:
    model = from_metadata(ENCODER, ["batch", "sequence"])
    largest = largest_sizes(model, {"batch": [1, 32], "sequence": [16, 128]})
    assert default_sizes(largest, "batch") == {"batch": Distribution(1, 1), "sequence": Distribution(1, 128, 32)}


def maker(ranges: dict[str, tuple[int, int]] | None = None) -> Maker:
    model = from_metadata(ENCODER, ["batch", "sequence"])
    return Maker(model, {"batch": Distribution(1, 2), "sequence": Distribution(3, 9)}, ranges or {})


def test_requests_are_what_the_model_takes_and_the_same_again_with_the_same_seed() -> None:
    made = maker({"ids": (5, 11)}).make(50, seed=3)
    for each in made:
        assert each.arrays["ids"].shape == each.arrays["mask"].shape == tuple(each.sizes.values())
        assert (each.arrays["mask"] == 1).all()
        assert ((each.arrays["ids"] >= 5) & (each.arrays["ids"] <= 11)).all()
    again = maker({"ids": (5, 11)}).make(50, seed=3)
    assert all((a.arrays["ids"] == b.arrays["ids"]).all() for a, b in zip(made, again, strict=True))
    assert len({each.sizes["sequence"] for each in made}) > 3


def test_a_range_of_ids_is_found_by_asking() -> None:
    asked: list[int] = []

    def knows_50_words(request: Request) -> bool:
        asked.append(int(request.arrays["ids"].max()))
        return asked[-1] < 50

    assert find_ranges(maker(), knows_50_words).ranges == {"ids": (0, 9)}
    assert asked == [999, 99, 9]
    assert find_ranges(maker({"ids": (0, 3)}), lambda _: False).ranges == {"ids": (0, 3)}
    with pytest.raises(BenchError, match="ids"):
        find_ranges(maker(), lambda _: False)


TYPES = ["BOOL", "INT8", "UINT8", "INT32", "INT64", "UINT64", "FP16", "BF16", "FP32", "FP64", "BYTES"]


@pytest.mark.parametrize("datatype", TYPES)
def test_every_datatype_is_made_and_written_in_binary(datatype: str) -> None:
    model = ModelInfo("m", "1", (TensorInfo("x", datatype, ("batch", 2)),), "batch")
    (made,) = Maker(model, {"batch": Distribution(3, 3)}, {}).make(1)
    body = binary_body(model, made)
    head = json.loads(body.content[: int(dict(body.headers)[BINARY_HEADER])])
    (tensor,) = head["inputs"]
    raw = body.content[int(dict(body.headers)[BINARY_HEADER]) :]
    assert (tensor["datatype"], tensor["shape"]) == (datatype, [3, 2])
    assert tensor["parameters"]["binary_data_size"] == len(raw)
    assert head["parameters"]["binary_data_output"] is True
    if datatype == "BYTES":
        (length,) = struct.unpack("<I", raw[:4])
        assert raw[4 : 4 + length].decode() == made.arrays["x"][0][0]
    elif datatype == "BF16":
        assert len(raw) == 12
    else:
        assert (np.frombuffer(raw, made.arrays["x"].dtype).reshape(3, 2) == made.arrays["x"]).all()


def test_texts_have_as_many_words_as_asked_for_and_files_are_bytes(tmp_path: Path) -> None:
    model = ModelInfo("m", "1", (TensorInfo("text", "BYTES", ("batch",)),), "batch")
    sizes = {"batch": Distribution(2, 2), "text.words": Distribution(4, 6)}
    texts = [text for each in Maker(model, sizes, {}).make(20) for text in each.arrays["text"]]
    assert {len(text.split()) for text in texts} == {4, 5, 6}
    np.savez(tmp_path / "images.npz", **{"text.0": np.frombuffer(b"\xff\xd8\x00", np.uint8)})
    (image,) = read_samples(tmp_path / "images.npz", model)
    assert json.loads(json_body(model, image).content)["inputs"][0]["data"] == ["/9gA"]
    assert binary_body(model, image).content.endswith(b"\x03\x00\x00\x00\xff\xd8\x00")


def test_json_requests_hold_the_same_numbers() -> None:
    made = maker({"ids": (5, 11)}).make(1)[0]
    (tensor, _) = json.loads(json_body(maker().model, made).content)["inputs"]
    assert tensor["data"] == made.arrays["ids"].reshape(-1).tolist()
    assert tensor["shape"] == list(made.arrays["ids"].shape)
    half = ModelInfo("m", "1", (TensorInfo("x", "FP16", (1,)),), None)
    with pytest.raises(BenchError, match="--binary"):
        json_body(half, Maker(half, {}, {}).make(1)[0])


def test_a_request_on_the_wire_is_http() -> None:
    made = maker().make(2)
    wire = http_requests(maker().model, made, host="h:1", x_headway_priority="low")[0]
    head, _, body = wire.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v2/models/encoder/infer HTTP/1.1"
    assert {"host: h:1", "x-headway-priority: low", f"content-length: {len(body)}"} <= set(lines)


def test_samples_are_read_from_an_archive(tmp_path: Path) -> None:
    model = from_metadata(ENCODER, ["batch", "sequence"])
    np.savez(tmp_path / "rows.npz", ids=np.arange(12).reshape(4, 3), mask=np.ones((4, 3)))
    rows = read_samples(tmp_path / "rows.npz", model)
    assert [each.sizes for each in rows] == [{"batch": 1, "sequence": 3}] * 4
    assert rows[1].arrays["ids"].tolist() == [[3, 4, 5]]
    assert rows[1].arrays["mask"].dtype == np.int64
    whole = {f"{name}.{at}": np.ones((2, at + 1)) for at in range(3) for name in ("ids", "mask")}
    np.savez(tmp_path / "whole.npz", **whole)  # type: ignore[arg-type]
    sizes = [each.sizes for each in read_samples(tmp_path / "whole.npz", model)]
    assert sizes == [{"batch": 2, "sequence": at} for at in (1, 2, 3)]
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(BenchError, match="it holds x"):
        read_samples(tmp_path / "other.npz", model)
    np.savez(tmp_path / "flat.npz", ids=np.ones(3), mask=np.ones(3))
    with pytest.raises(BenchError, match="axes"):
        read_samples(tmp_path / "flat.npz", model)
    (tmp_path / "no.npz").write_text("no")
    with pytest.raises(BenchError, match=r"no\.npz"):
        read_samples(tmp_path / "no.npz", model)


@pytest.mark.parametrize("url", ["https://x", "ftp://x:1", "http://", "http://x:port", "http://[::1"])
def test_urls_that_cannot_be_measured_are_refused(url: str) -> None:
    with pytest.raises(BenchError, match="--url"):
        address_of(url)


def test_urls_are_taken_apart() -> None:
    assert str(address_of("http://a.b:81/x")) == "a.b:81"
    assert str(address_of("localhost:8080")) == "localhost:8080"
    assert str(address_of("http://[::1]:9")) == "[::1]:9"
    assert address_of("http://a").port == 80
