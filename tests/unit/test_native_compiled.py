"""A program compiled once by the real command, and everything that a pod does with the package: who may have signed it,
on what machine it runs, what it answers, and how it is refused.
"""

import json
import platform
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.cli import app
from headway_runtime.native import package, processor
from headway_runtime.prepare import run
from headway_runtime.prepare.container.archive import open_archive
from headway_runtime.prepare.errors import PrepareError, Refusal
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.keys import PrivateKey
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import file_digest, sign_statement, signature_file
from headway_runtime.program import Program, ProgramError, ShapeError, load_program
from typer.testing import CliRunner

from tests.unit.pod_process import pod, question
from tests.unit.signing_keys import public
from tests.unit.small_models import WORDS, Encoder, export

TARGET = "x86-64-v3"
TORCH = torch.__version__.partition("+")[0]
BUILDER, TEAM = keys.generate(), keys.generate()
TRUST = Trust(public=(public(TEAM),), builders=(public(BUILDER, "builder.pub"),))

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++, and this machine has none"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="native code is for x86-64"),
]


@dataclass(frozen=True)
class Compiled:
    """What the command wrote and printed."""

    source: Path
    package: Path
    printed: str


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    source = export(Encoder, folder / "encoder.pt2")
    before = source.read_bytes()
    (folder / "builder.key").write_bytes(BUILDER.private_pem())
    arguments = ["compile", str(source), "--target", TARGET, "--key", str(folder / "builder.key")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert source.read_bytes() == before
    return Compiled(source, folder / "encoder.native.pt2", done.output)


@pytest.fixture(scope="module")
def directory(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(compiled.package, tmp_path_factory.mktemp("native") / "model")


@pytest.fixture(scope="module")
def native(directory: Path) -> Program:
    return load_program(directory, dimension_names={})


@pytest.fixture(scope="module")
def machine(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Program:
    directory = prepare(compiled.source, tmp_path_factory.mktemp("machine") / "model")
    return load_program(directory, dimension_names={})


@pytest.fixture
def copy(compiled: Compiled, tmp_path: Path) -> Path:
    """The package with its signature, to be spoilt."""
    path = tmp_path / "published" / "encoder.native.pt2"
    path.parent.mkdir()
    shutil.copy(compiled.package, path)
    shutil.copy(signature_file(compiled.package), signature_file(path))
    return path


def prepare(artifact: Path, target: Path, trust: Trust = TRUST) -> Path:
    run.prepare(artifact.as_uri(), target, pinned=None, credentials=Path("/nonexistent"), trust=trust)
    return target


def refused(artifact: Path, reason: str, trust: Trust = TRUST) -> str:
    output = artifact.parent.parent / "model"
    with pytest.raises(PrepareError) as error:
        prepare(artifact, output, trust)
    assert error.value.reason == reason, error.value
    assert list(output.iterdir()) == []
    return str(error.value)


def words(batch: int, sequence: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(batch * 1000 + sequence)
    ids = torch.randint(0, WORDS, (batch, sequence), generator=generator)
    mask = torch.randint(0, 2, (batch, sequence), generator=generator)
    return [ids, mask]


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None], **said: Any) -> None:
    """The package with changed records, written anew and signed by the builder all the same."""
    records = parts(path)
    change(records)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(f"native/{name}", data)
    sign(path, BUILDER, **said)


def sign(path: Path, *signers: PrivateKey, **said: Any) -> None:
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("native/native.json"))
    statement = {"torch": manifest["torch"], "native": True, "target": TARGET, "source": manifest["source"], **said}
    signature_file(path).write_bytes(sign_statement(path, *signers, **statement))


def manifest(**changed: Any) -> Callable[[dict[str, bytes]], None]:
    def change(records: dict[str, bytes]) -> None:
        records["native.json"] = json.dumps({**json.loads(records["native.json"]), **changed}).encode()

    return change


def test_the_command_says_what_it_did(compiled: Compiled) -> None:
    assert f"for {TARGET}, torch {TORCH}" in compiled.printed
    assert f"source {file_digest(compiled.source)}" in compiled.printed
    assert "agrees in " in compiled.printed
    assert f"signed by {BUILDER.keyid}" in compiled.printed
    assert "avx2" in compiled.printed


def test_a_package_holds_the_source_as_it_was_and_no_weights_beside_it(compiled: Compiled) -> None:
    with open_archive(compiled.package) as archive:
        found = package.read(archive)
        assert set(archive.entries) == {"native.json", "source.pt2", "library/model.so"}
    assert parts(compiled.package)["source.pt2"] == compiled.source.read_bytes()
    assert (found.torch, found.target) == (TORCH, TARGET)
    weights = Encoder().words.weight.detach().numpy().tobytes()
    assert weights in parts(compiled.package)["source.pt2"]
    assert weights not in parts(compiled.package)["library/model.so"]


def test_the_same_parts_make_the_same_package(compiled: Compiled, tmp_path: Path) -> None:
    for name, data in parts(compiled.package).items():
        (tmp_path / Path(name).name).write_bytes(data)
    found = package.Manifest.parse((tmp_path / "native.json").read_bytes())
    again = tmp_path / "again.pt2"
    package.write(again, found, source=tmp_path / "source.pt2", libraries={"model": tmp_path / "model.so"})
    assert again.read_bytes() == compiled.package.read_bytes()


@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (1, 128), (2, 7), (13, 33), (64, 128)])
def test_native_code_answers_as_the_machine_does(machine: Program, native: Program, batch: int, sequence: int) -> None:
    assert (machine.native, native.native) == (None, TARGET)
    inputs = words(batch, sequence)
    for answer, wanted in zip(native.run(inputs), machine.run(inputs), strict=True):
        torch.testing.assert_close(answer, wanted, rtol=1e-5, atol=1e-6)


def test_names_ranges_and_batching_are_those_of_the_program(machine: Program, native: Program) -> None:
    for attribute in ("inputs", "outputs", "dimensions", "batch", "torch_version"):
        assert getattr(native, attribute) == getattr(machine, attribute)


def test_a_shape_that_the_program_does_not_allow_never_reaches_the_library(native: Program) -> None:
    for inputs in (words(65, 3), words(2, 129), [words(2, 3)[0], words(2, 4)[1]], words(2, 3)[:1]):
        with pytest.raises(ShapeError):
            native.run(inputs)


def test_a_wrong_element_type_never_reaches_the_library(native: Program) -> None:
    with pytest.raises(TypeError, match="int32"):
        native.run([x.to(torch.int32) for x in words(2, 3)])


def test_inputs_with_other_strides_are_read_right(machine: Program, native: Program) -> None:
    inputs = [x.T.contiguous().T for x in words(4, 6)]
    assert not inputs[0].is_contiguous()
    for answer, wanted in zip(native.run(inputs), machine.run(inputs), strict=True):
        torch.testing.assert_close(answer, wanted, rtol=1e-5, atol=1e-6)


def test_the_library_reads_its_weights_from_the_mapped_file(native: Program, directory: Path) -> None:
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(directory) in line]
    (weights,) = (line for line in mapped if line.endswith("/weights.bin"))
    begin, end = (int(at, 16) for at in weights.split()[0].split("-"))
    runner = native._machine._runner  # type: ignore[attr-defined]  # there is no other way to ask the library
    constants: Mapping[str, torch.Tensor] = runner.extract_constants_map(False)
    assert len(constants) == 3
    assert all(begin <= tensor.data_ptr() < end for tensor in constants.values())
    assert weights.split()[1].startswith("r--")


def test_an_index_that_no_table_has_is_an_error_and_not_the_end_of_the_process(
    compiled: Compiled, native: Program
) -> None:
    assert "one thread" not in compiled.printed
    ids, mask = words(64, 128)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for index in (WORDS, -1, 2**40):
            ids[63, 127] = index
            with pytest.raises(RuntimeError, match=r"^index .*out of (bounds|range)[^\n]*\Z"):
                native.run([ids, mask])
    finally:
        torch.set_num_threads(before)


def test_a_pod_serves_native_code_inside_the_sandbox(machine: Program, directory: Path, tmp_path: Path) -> None:
    ids = [[1, 2, 3], [4, 5, 6]]
    with pod(tmp_path, directory) as server:
        server.wait_for_phase()
        bad = server.client.post(server.infer, json=question([[1, WORDS + 5, 3]]))
        answer = server.client.post(server.infer, json=question(ids)).json()["outputs"][0]
        report = server.report()
        library = package.library_file(directory, "model")
        assert str(library) in Path(f"/proc/{server.process.pid}/maps").read_text()
        assert server.terminate() == 0
    assert report["sandbox"]["seccomp"], report
    assert report["native"] == TARGET
    assert bad.status_code == 400, bad.text
    assert f"input 'ids' holds {WORDS + 5}; the model knows 0 to {WORDS - 1}" in bad.text
    wanted = machine.run([torch.tensor(ids), torch.ones(2, 3, dtype=torch.int64)])[0]
    torch.testing.assert_close(torch.tensor(answer["data"]).reshape(answer["shape"]), wanted, rtol=1e-5, atol=1e-6)


def test_a_package_without_a_signature_is_refused_before_it_is_looked_into(copy: Path) -> None:
    signature_file(copy).unlink()
    for trust in (TRUST, Trust()):
        assert "rule native.unsigned" in refused(copy, "UnsafeArtifact", trust)
    refused(copy, "SignatureMissing", Trust(required=True, builders=TRUST.builders))


def test_a_key_that_is_no_builders_cannot_vouch_for_native_code(copy: Path) -> None:
    sign(copy, TEAM)
    assert "none of spec.artifact.trust.builderKeys" in refused(copy, "SignatureInvalid")


def test_a_builders_signature_that_does_not_say_native_is_not_enough(copy: Path) -> None:
    sign(copy, BUILDER, native=False, target=None, source=None)
    assert "rule native.unsigned" in refused(copy, "UnsafeArtifact")


def test_a_builder_signs_a_package_where_nothing_is_compiled(copy: Path, tmp_path: Path) -> None:
    signature_file(copy).unlink()
    key = tmp_path / "builder"
    key.write_bytes(BUILDER.private_pem())
    plain = CliRunner().invoke(app, ["sign", str(copy), "--key", str(key)])
    assert (plain.exit_code, signature_file(copy).exists()) == (1, False)
    assert "headway sign --native" in plain.output
    done = CliRunner().invoke(app, ["sign", "--native", str(copy), "--key", str(key)])
    assert (done.exit_code, prepare(copy, tmp_path / "model").is_dir()) == (0, True), done.output


def test_inspect_says_of_a_package_what_a_pod_would_say(copy: Path, tmp_path: Path) -> None:
    def inspect(*options: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(app, ["inspect", str(copy), "--json", *options])
        return done.exit_code, json.loads(done.stdout)

    public = tmp_path / "builder.pub"
    public.write_bytes(BUILDER.public_pem())
    code, report = inspect("--builder-key", str(public))
    assert (code, report["native"]["target"]) == (0, TARGET), report
    assert [program["name"] for program in report["programs"]] == ["model"]
    code, report = inspect("--key", str(public))
    assert (code, report["native"], report["signature"]) == (1, None, None)
    assert [refusal["reason"] for refusal in report["refusals"]] == ["SignatureInvalid", "UnsafeArtifact"]


def test_a_plain_program_and_another_source_are_not_signed_as_native_code(
    compiled: Compiled, copy: Path, tmp_path: Path
) -> None:
    key = tmp_path / "builder"
    key.write_bytes(BUILDER.private_pem())
    signature_file(copy).unlink()
    plain = CliRunner().invoke(app, ["sign", "--native", str(compiled.source), "--key", str(key)])
    assert "holds no native code" in plain.output
    data = bytearray(copy.read_bytes())
    data[data.index(b"schema_version")] ^= 1  # of the source, whose checksum in the zip then differs
    copy.write_bytes(data)
    altered = CliRunner().invoke(app, ["sign", "--native", str(copy), "--key", str(key)])
    assert (altered.exit_code, signature_file(copy).exists()) == (1, False)
    assert "checksum" in altered.output


def test_a_signature_for_native_code_is_none_for_a_plain_program(compiled: Compiled, tmp_path: Path) -> None:
    plain = tmp_path / "published" / "encoder.pt2"
    plain.parent.mkdir()
    shutil.copy(compiled.source, plain)
    said = {"torch": TORCH, "target": TARGET, "source": file_digest(plain)}
    signature_file(plain).write_bytes(sign_statement(plain, BUILDER, native=True, **said))
    assert "plain program" in refused(plain, "SignatureInvalid")


def test_a_changed_library_is_not_what_was_signed(copy: Path) -> None:
    data = bytearray(copy.read_bytes())
    data[data.index(b"\x7fELF") + 5000] ^= 1
    copy.write_bytes(data)
    assert "another file" in refused(copy, "SignatureInvalid")
    sign(copy, BUILDER)
    assert "rule archive.crc" in refused(copy, "UnsafeArtifact")


def test_another_torch_is_refused_naming_both(copy: Path) -> None:
    rewrite(copy, manifest(torch="2.14.1"))
    message = refused(copy, "IncompatibleVersion")
    assert "2.14.1" in message
    assert TORCH in message


def test_a_processor_that_lacks_a_feature_is_refused_naming_it(
    copy: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx", "fma"}))
    assert "lacks abm, avx2" in refused(copy, "IncompatibleVersion")
    with pytest.raises(ProgramError, match="lacks abm, avx2") as error:
        load_program(directory, dimension_names={})
    assert error.value.reason == "IncompatibleVersion"


def test_a_package_is_loaded_by_the_torch_it_was_compiled_with_only(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "model")
    file = package.manifest_file(tmp_path / "model")
    file.write_text(file.read_text().replace(TORCH, "2.14.1"))
    with pytest.raises(ProgramError, match=r"2\.14\.1") as error:
        load_program(tmp_path / "model", dimension_names={})
    assert error.value.reason == "IncompatibleVersion"


def test_a_library_that_cannot_be_opened_is_a_condition(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "model")
    package.library_file(tmp_path / "model", "model").write_bytes(b"\x7fELF and no more")
    with pytest.raises(ProgramError, match="cannot be opened here") as error:
        load_program(tmp_path / "model", dimension_names={})
    assert error.value.reason == "IncompatibleVersion"


@pytest.mark.parametrize(
    "said",
    [{"target": "x86-64-v4"}, {"source": f"sha256:{'0' * 64}"}, {"torch": "2.14.1"}],
    ids=["target", "source", "torch"],
)
def test_a_package_must_be_what_its_signature_says(copy: Path, said: dict[str, str]) -> None:
    sign(copy, BUILDER, **said)
    assert next(iter(said)) in refused(copy, "SignatureInvalid")


def _stranger(records: dict[str, bytes]) -> None:
    records["library/other.so"] = b"\x7fELF"


def _json_beside(records: dict[str, bytes]) -> None:
    records["library/model.json"] = b"{}"


def _other_source(records: dict[str, bytes]) -> None:
    records["source.pt2"] = records["source.pt2"] + b" "


@pytest.mark.parametrize(
    "change",
    [
        _stranger,
        _json_beside,
        _other_source,
        manifest(device="cuda"),
        manifest(more=1),
        manifest(features=["avx2; rm"]),
        manifest(programs={"model": {"guards": [["eval", 1]]}}),
        manifest(programs={"model": {"guards": [["lt", "s9", 1]]}}),
    ],
)
def test_what_a_builder_signed_is_read_as_strictly_as_anything(copy: Path, change: Any) -> None:
    rewrite(copy, change)
    assert "rule native.form" in refused(copy, "UnsafeArtifact")


def test_the_source_in_a_package_is_inspected_like_any_artifact(copy: Path, tmp_path: Path) -> None:
    def spoil(records: dict[str, bytes]) -> None:
        source = tmp_path / "source.pt2"
        source.write_bytes(records["source.pt2"])
        inner = {}
        with zipfile.ZipFile(source) as archive:
            inner = {name: archive.read(name) for name in archive.namelist()}
        root = next(iter(inner)).partition("/")[0]
        inner[f"{root}/models/model.json"] = inner[f"{root}/models/model.json"].replace(b"aten.tanh", b"aten.evil")
        with zipfile.ZipFile(source, "w", zipfile.ZIP_STORED) as archive:
            for name, data in inner.items():
                archive.writestr(name, data)
        records["source.pt2"] = source.read_bytes()
        manifest(source=file_digest(source))(records)

    rewrite(copy, spoil)
    assert "rule operator.unlisted" in refused(copy, "UnsafeArtifact")


def test_a_prepared_package_is_not_used_again_once_nobody_is_trusted(copy: Path, tmp_path: Path) -> None:
    output = prepare(copy, tmp_path / "model")
    prepare(copy, output)
    with pytest.raises(Refusal, match=r"native\.unsigned"):
        prepare(copy, output, Trust())
    assert not package.manifest_file(output).parent.exists()


def test_native_code_keeps_its_weights_as_they_were_compiled(directory: Path) -> None:
    with pytest.raises(ProgramError, match="native code") as error:
        load_program(directory, dimension_names={}, precision=Precision.INT8)
    assert (error.value.reason, error.value.field) == ("PrecisionRefused", "spec.precision")
