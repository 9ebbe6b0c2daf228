"""Example inputs of a plain `torch.export.save`: read without unpickling; a pickle that does more is refused."""

import base64
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from headway_runtime.prepare import inspection
from headway_runtime.prepare.beside import unpickle
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.report import describe
from torch.export import Dim, export, save

from tests.hostile import archives

NAME = "data/sample_inputs/model.pt"


class Nested(torch.nn.Module):
    """Inputs of every nesting, types and layouts."""

    def forward(
        self, a: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], *, options: dict[str, Any], mask: torch.Tensor
    ) -> torch.Tensor:
        rest = pair[0].sum() + pair[1].sum() + options["scale"] + mask.sum()
        return a.to(torch.float32) + rest + options["more"][0].to(torch.float32).sum()


def write(path: Path, a: torch.Tensor, more: torch.Tensor) -> Path:
    pair = (torch.ones(2, dtype=torch.float64), torch.nn.Parameter(torch.arange(3.0), requires_grad=True))
    mask = torch.tensor([True, False])
    kwargs = {"options": OrderedDict(scale=torch.tensor(2.0), more=[more]), "mask": mask}
    with torch.no_grad():
        program = export(Nested().eval(), (a, pair), kwargs, strict=False)
    save(program, path)
    return path


def inputs(path: Path) -> list[tuple[str, list[int], bytes]]:
    found = inspection.inspect(str(path))
    (sample,) = found.samples
    assert sample["outputs"] == []
    return [(t["dtype"], t["shape"], base64.b64decode(t["data"])) for t in sample["inputs"]]


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_nested_inputs_of_all_kinds_come_in_the_programs_order(tmp_path: Path) -> None:
    a, more = torch.rand(4, 5), torch.rand(3, 2).to(torch.bfloat16)
    found = inputs(write(tmp_path / "m.pt2", a, more))
    names = [i["name"] for i in inspection.inspect(str(tmp_path / "m.pt2")).document["inputs"]]
    assert names == ["a", "pair.0", "pair.1", "options.scale", "options.more.0", "mask"]
    assert [(dtype, shape) for dtype, shape, _ in found] == [
        ("float32", [4, 5]),
        ("float64", [2]),
        ("float32", [3]),
        ("float32", []),
        ("bfloat16", [3, 2]),
        ("bool", [2]),
    ]
    assert (found[0][2], found[4][2], found[5][2]) == (raw(a), raw(more), b"\1\0")


@pytest.mark.parametrize(
    "view",
    [
        torch.arange(24.0).reshape(4, 6).t(),
        torch.arange(24.0)[3:15].reshape(3, 4),
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.arange(4.0).expand(3, 4),
        torch.arange(24.0).reshape(4, 6)[::2, 1:3],
        torch.tensor(7.0),
        torch.empty(0, 3),
    ],
)
def test_views_are_read_with_their_strides(tmp_path: Path, view: torch.Tensor) -> None:
    found = inputs(write(tmp_path / "m.pt2", view, torch.zeros(1)))
    assert found[0] == ("float32", list(view.shape), raw(view))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.int8])
def test_types_without_a_storage_of_their_own_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    a = torch.arange(6).to(dtype).reshape(2, 3)
    assert inputs(write(tmp_path / "m.pt2", a, torch.zeros(1)))[0] == (str(dtype)[6:], [2, 3], raw(a))


def test_honest_examples_that_are_too_large_are_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", torch.zeros(1100, 1000), torch.zeros(1))
    report = describe(path)
    assert report.accepted
    assert report.facts["programs"][0]["exampleInputs"] == 0
    assert "example inputs are not used: the example inputs have 4,400,0" in report.to_text()


def test_examples_that_are_no_inputs_of_the_program_are_left_out(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    program = export(Twice().eval(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: Dim("b", min=1, max=9)}})
    for example, why in (
        ((torch.ones(2, 3).double(),), "is float64 with 2 axes"),
        ((torch.ones(2, 3, 1),), "is float32 with 3 axes"),
        ((7,), "hold 0 tensors"),
    ):
        program.example_inputs = (example, {})
        save(program, tmp_path / "m.pt2")
        report = describe(tmp_path / "m.pt2")
        assert report.accepted
        assert why in report.facts["programs"][0]["note"]


def storage(kind: str = "FloatStorage", key: Any = "0", count: Any = 6) -> bytes:
    """A persistent id, and the opcode that takes it."""
    return (
        b"(X\x07\0\0\0storagectorch\n" + kind.encode() + b"\n" + _value(key) + b"X\x03\0\0\0cpu" + _value(count) + b"tQ"
    )


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return b"X" + len(value).to_bytes(4, "little") + value.encode()
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_value, value)) + b"t"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)


def tensor(*, stored: bytes = storage(), offset: Any = 0, shape: Any = (2, 3), stride: Any = (3, 1)) -> bytes:
    head = b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored
    return head + b"".join(map(_value, (offset, shape, stride, False))) + b"ccollections\nOrderedDict\n)RtR"


def typed(dtype: bytes, count: int = 12) -> bytes:
    stored = storage(count=count).replace(b"ctorch\nFloat", b"ctorch.storage\nUntyped")
    return tensor(stored=stored).replace(b"_v2", b"_v3").removesuffix(b"tR") + dtype + b"tR"


def test_the_machine_reads_an_honest_tensor() -> None:
    assert unpickle.load(b"\x80\x02" + typed(b"ctorch\nuint16\n") + b".").storage.elements == 6
    found = unpickle.load(b"\x80\x02" + tensor() + b".")
    assert (found.dtype, found.shape, found.stride, found.offset, found.storage.key) == (
        "float32",
        (2, 3),
        (3, 1),
        0,
        "0",
    )


@pytest.mark.parametrize(
    "body",
    [
        b"cos\nsystem\n)R",
        b"ctorch\ndevice\nX\x01\0\0\0aR",
        b"ctorch\nFloatStorage\n)R",
        b"ccollections\nOrderedDict\n(K\x01tR",
        b"ctorch\nSize\n)R",
        b"X\x01\0\0\0a)R",
        b"]K\x01K\x02s",
        b"}K\x01a",
        b"}(]K\x01u",
        b"}(K\x01u",
        b"(e",
        b"t",
        b"0",
        b"h\x05",
        b"(",
        b"K\x01K\x02",
        b"",
        b"Q",
        b"NQ",
        b"\x85",
        storage(kind="UntypedStorage"),
        tensor(stored=storage().replace(b"ctorch\nFloat", b"ctorch.storage\nUntyped")),
        tensor().replace(b"_v2", b"_v3"),
        typed(b"ctorch\nFloatStorage\n"),
        typed(b"ctorch\nuint16\n", count=7),
        typed(b"ctorch\nuint16\n", count=10),
        typed(b"ctorch\nuint16\n").replace(b"Untyped", b"Long"),
        storage(key=3),
        storage(count=-1),
        storage(count=True),
        storage(count=2**60),
        tensor(shape=(2, 4)),
        tensor(offset=1),
        tensor(offset=-1),
        tensor(shape=(2, -3)),
        tensor(shape=(2**40, 2**40), stride=(0, 0)),
        tensor(shape=(2,), stride=(3, 1)),
        tensor(shape=(1,) * 17, stride=(1,) * 17),
        tensor(shape=(True, 3)),
        tensor(shape="23"),
        tensor(stored=b"N"),
        b"ctorch._utils\n_rebuild_parameter\n(NNNtR",
        b"\x8c\x01a",
        b"c__builtin__\ngetattr\n",
        b"cTorch\nFloatStorage\n",
        b"ctorch FloatStorage\n\n",
        b"ctorch\nFloatStorage Untyped\n",
    ],
    ids=range(47),
)
def test_whatever_is_no_plain_tensor_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        unpickle.load(b"\x80\x02" + body + b".")
    assert refused.value.rule == "sample.pickle"


def test_work_is_linear_in_the_bytes_of_the_pickle() -> None:
    doubling = b"K\x01" + b"q\x00h\x00\x86" * 30_000  # each pair holds the one before twice
    assert unpickle.load(b"\x80\x02" + doubling + b".") is not None
    with pytest.raises(Refusal):
        unpickle.load(b"\x80\x02" + b"N" * 200_000 + b".")


def test_an_altered_pickle_is_read_or_refused_and_nothing_else() -> None:
    buffer = io.BytesIO()
    torch.save(((torch.ones(2, 3), [torch.ones(2, dtype=torch.uint16)]), {"k": torch.ones(2, 2).t()}), buffer)
    with zipfile.ZipFile(buffer) as archive:
        honest_pickle = next(archive.read(n) for n in archive.namelist() if n.endswith("data.pkl"))
    unpickle.load(honest_pickle)
    random = Random(1)
    outcomes = set()
    for _ in range(3000):
        data = bytearray(honest_pickle)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data))
            part = random.choice(
                [b"", bytes([random.randrange(256)]), b"(", b"tR", b"Q", b"h\1", b"\x86", honest_pickle[at:]]
            )
            data[at : at + random.randint(0, 3)] = part
        try:
            unpickle.load(bytes(data))
            outcomes.add("read")
        except Refusal as refusal:
            outcomes.add(refusal.rule)
    assert outcomes == {"read", "sample.pickle"}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("examples") / "m.pt2", torch.ones(2, 2), torch.zeros(1))


def altered(honest: Path, target: Path, inner: dict[str, bytes]) -> Path:
    """The archive with other example inputs in it."""
    entries = archives.read(honest)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(entries[NAME])) as archive:
        parts = {n.split("/", 1)[1]: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as out:
        for name, data in {**parts, **inner}.items():
            out.writestr(zipfile.ZipInfo(f"model/{name}"), data)
    return archives.write(target, {**entries, NAME: buffer.getvalue()})


def test_an_archive_of_examples_is_held_against_its_pickle(honest: Path, tmp_path: Path) -> None:
    assert inputs(altered(honest, tmp_path / "same.pt2", {})) == inputs(honest)
    for name, data in {
        "data/0": b"short",
        "data.pkl": pickle.dumps(((), {}), protocol=4),
        "byteorder": b"big",
        "code/x.py": b"",
        "data/5": b"\2\1",
    }.items():
        path = altered(honest, tmp_path / "other.pt2", {name: data})
        with pytest.raises(Refusal) as refused:
            inspection.inspect(str(path))
        assert (refused.value.rule, refused.value.record) == ("sample.pickle", NAME)
