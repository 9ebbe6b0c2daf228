"""Archives with several programs: all are inspected, one is loaded, weights that they share are stored once."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from headway_runtime.prepare import inspection, isolate, repack
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.errors import PrepareError, Refusal
from headway_runtime.prepare.run import prepare
from headway_runtime.prepare.translate import program
from headway_runtime.program import ProgramError, load_program
from torch import nn
from torch.export.pt2_archive._package import package_pt2

from tests.hostile import archives


class Encoder(nn.Module):
    def __init__(self, words: nn.Embedding, *, twice: bool = False) -> None:
        super().__init__()
        self.words, self.twice = words, twice

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.words(ids)
        return found * 2 if self.twice else found


class Counting(nn.Module):
    """Writes to a buffer that holds the bytes of another program's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((16,), 5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


IDS = torch.tensor([1, 3])
X = torch.zeros(16)


def package(path: Path, modules: dict[str, tuple[nn.Module, torch.Tensor]]) -> Path:
    programs = {}
    for name, (module, example) in modules.items():
        programs[name] = torch.export.export(module, (example,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package_pt2(str(path), exported_programs=programs)
    return path


@pytest.fixture(scope="module")
def words() -> nn.Embedding:
    torch.manual_seed(3)
    return nn.Embedding(50, 16)


@pytest.fixture(scope="module")
def artifact(words: nn.Embedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("several") / "two.pt2"
    return package(path, {"prefill": (Encoder(words), IDS), "decode": (Encoder(words, twice=True), IDS)})


@pytest.fixture(scope="module")
def prepared(artifact: Path) -> Path:
    target = artifact.parent / "prepared"
    target.mkdir()
    repack.repack(isolate.inspect_isolated(artifact), artifact, target)
    return target


def test_each_program_is_loaded_by_its_name(prepared: Path, words: nn.Embedding) -> None:
    assert repack.program_names(prepared) == ["decode", "prefill"]
    prefill = load_program(prepared, dimension_names={}, program="prefill")
    decode = load_program(prepared, dimension_names={}, program="decode")
    assert torch.equal(prefill.run([IDS])[0], words(IDS))
    assert torch.equal(decode.run([IDS])[0], words(IDS) * 2)


def test_weights_that_programs_share_are_stored_once(artifact: Path, prepared: Path) -> None:
    assert sum("weights/weight_" in name for name in archives.read(artifact)) == 2, "torch stores them twice"
    assert (prepared / repack.WEIGHTS).stat().st_size == 50 * 16 * 4


def test_the_order_of_packaging_does_not_change_a_byte(artifact: Path, prepared: Path, words: nn.Embedding) -> None:
    other = package(
        artifact.parent / "other.pt2", {"decode": (Encoder(words, twice=True), IDS), "prefill": (Encoder(words), IDS)}
    )
    target = artifact.parent / "again"
    target.mkdir()
    repack.repack(inspection.inspect(str(other)), other, target)
    for file in (*(repack.program_file(Path(), n) for n in ("prefill", "decode")), Path(repack.WEIGHTS)):
        assert (target / file).read_bytes() == (prepared / file).read_bytes()


@pytest.mark.parametrize("wanted", [None, "encoder", "../decode", ""])
def test_a_program_that_is_not_there_is_refused_naming_those_that_are(prepared: Path, wanted: str | None) -> None:
    with pytest.raises(ProgramError, match=r"decode, prefill") as refused:
        load_program(prepared, dimension_names={}, program=wanted)
    assert (refused.value.condition, refused.value.reason) == ("ArtifactVerified", "UnknownProgram")
    assert refused.value.field == "spec.artifact.program"


def test_the_prepare_step_refuses_it_before_it_writes(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match=r"decode, prefill") as refused:
        prepare(artifact.as_uri(), tmp_path / "out", pinned=None, credentials=tmp_path, program="nobody")
    assert refused.value.reason == "UnknownProgram"
    assert list((tmp_path / "out").iterdir()) == []
    assert prepare(artifact.as_uri(), tmp_path / "out", pinned=None, credentials=tmp_path, program="decode")


def test_another_program_of_a_prepared_artifact_is_not_mistaken_for_it(artifact: Path, tmp_path: Path) -> None:
    for name in ("decode", "prefill"):
        facts = prepare(artifact.as_uri(), tmp_path, pinned=None, credentials=tmp_path, program=name)
        assert facts["program"] == name


def test_of_several_programs_the_one_called_model_is_meant(words: nn.Embedding, tmp_path: Path) -> None:
    path = package(tmp_path / "m.pt2", {"model": (Encoder(words), IDS), "aside": (Counting(), X)})
    repack.repack(inspection.inspect(str(path)), path, tmp_path)
    assert torch.equal(load_program(tmp_path, dimension_names={}).run([IDS])[0], words(IDS))


def test_buffers_with_the_same_bytes_stay_apart_when_a_program_writes(tmp_path: Path) -> None:
    path = package(tmp_path / "c.pt2", {"a": (Counting(), X), "b": (Counting(), X)})
    found = inspection.inspect(str(path))
    assert len(found.copies) == 1
    repack.repack(found, path, tmp_path)
    a, b = (load_program(tmp_path, dimension_names={}, program=name) for name in "ab")
    assert [p.run([X])[0][0].item() for p in (a, b, a, b)] == [6.0] * 4


def test_records_of_one_checksum_and_other_bytes_are_both_kept(artifact: Path, tmp_path: Path) -> None:
    """A checksum is no identity: both records are given the one of the first."""
    entries = archives.read(artifact)
    first, second = sorted(name for name in entries if "weights/weight_" in name)
    items = [archives.Entry(f"m/{name}", data) for name, data in entries.items()]
    altered = next(item for item in items if item.name.decode().endswith(second))
    altered.data = bytes(len(altered.data))
    altered.crc = next(item.crc for item in items if item.name.decode().endswith(first))
    path = archives.raw(tmp_path / "collision.pt2", items)
    found = inspection.inspect(str(path))
    assert len(found.copies) == 2
    with pytest.raises(Refusal) as refused:  # and only a true checksum is copied
        repack.repack(found, path, tmp_path)
    assert refused.value.rule == "archive.crc"


def test_a_record_speaks_of_the_program_it_is_named_after(artifact: Path, tmp_path: Path) -> None:
    entries = archives.read(artifact)
    text = json.dumps({"version": record.VERSION, "outputs": ["vector"]}).encode()
    path = archives.write(tmp_path / "r.pt2", {**entries, "extra/headway.decode.json": text})
    found = inspection.inspect(str(path))
    assert found.programs["decode"].document["outputs"][0]["name"] == "vector"
    assert found.programs["prefill"].document["outputs"][0]["name"] == "output_0"


def test_the_format_of_a_prepared_program_is_checked(prepared: Path, tmp_path: Path) -> None:
    document = json.loads(repack.program_file(prepared, "decode").read_bytes())
    assert document["format"] == program.FORMAT
    repack.program_file(tmp_path, "model").parent.mkdir()
    repack.program_file(tmp_path, "model").write_text(json.dumps({**document, "format": program.FORMAT - 1}))
    with pytest.raises(ProgramError) as refused:
        load_program(tmp_path, dimension_names={})
    assert refused.value.reason == "IncompatibleVersion"
