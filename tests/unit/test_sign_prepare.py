"""The init container with keys: what it demands, where it looks, what it says, and what a restart may not bypass."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from headway_api.podconfig import ColdConfig
from headway_api.types import TrustLevel
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin, read_origin
from headway_runtime.pod import Pod
from headway_runtime.prepare import run
from headway_runtime.prepare.errors import FetchError, PrepareError, SignatureError
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.keys import PrivateKey
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import sign_statement, signature_file

from tests.unit.signing_keys import trusting

TORCH = torch.__version__.partition("+")[0]
TEAM, OTHER, BUILDER = keys.generate(), keys.generate(), keys.generate()
NO_CREDENTIALS = Path("/nonexistent")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.manual_seed(1)
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)), path)
    return path.read_bytes()


@pytest.fixture
def artifact(exported: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "published" / "model.pt2"
    path.parent.mkdir()
    path.write_bytes(exported)
    return path


def sign(artifact: Path, *signers: PrivateKey, **said: Any) -> None:
    signature_file(artifact).write_bytes(sign_statement(artifact, *signers, **{"torch": TORCH, **said}))


def prepare(artifact: Path | str, trust: Trust, *, credentials: Path = NO_CREDENTIALS) -> dict[str, Any]:
    uri = artifact if isinstance(artifact, str) else artifact.as_uri()
    return run.prepare(uri, output(artifact), pinned=None, credentials=credentials, trust=trust)


def output(artifact: Path | str) -> Path:
    return Path("/nonexistent") if isinstance(artifact, str) else artifact.parent.parent / "model"


def refused(artifact: Path, trust: Trust, reason: str = "SignatureInvalid") -> str:
    with pytest.raises(PrepareError) as error:
        prepare(artifact, trust)
    assert error.value.reason == reason, error.value
    assert not (output(artifact) / "prepared.json").exists()
    return str(error.value)


def test_a_signed_artifact_is_prepared_and_its_signer_recorded(artifact: Path) -> None:
    sign(artifact, TEAM)
    assert prepare(artifact, trusting(OTHER, TEAM))["signer"] == TEAM.keyid
    assert read_origin(output(artifact)).signer == TEAM.keyid


def test_a_missing_signature_is_refused_and_says_where_it_was_looked_for(artifact: Path) -> None:
    message = refused(artifact, trusting(TEAM), "SignatureMissing")
    assert f"{artifact.as_uri()}.sig" in message
    assert "headway sign" in message


def test_a_wrong_signature_is_refused_whether_or_not_one_is_demanded(artifact: Path) -> None:
    sign(artifact, OTHER)
    for required in (True, False):
        assert "no trusted key" in refused(artifact, Trust(required, trusting(TEAM).public))


def test_with_keys_and_no_demand_an_unsigned_artifact_is_served_and_said_to_be(
    artifact: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert prepare(artifact, Trust(False, trusting(TEAM).public))["signer"] is None
    assert "signature.none" in capfd.readouterr().err


def test_a_demand_without_keys_refuses_everything(artifact: Path) -> None:
    sign(artifact, TEAM)
    assert "empty or missing" in refused(artifact, Trust(required=True))


def test_without_keys_no_signature_is_looked_at(artifact: Path) -> None:
    signature_file(artifact).write_bytes(b"nonsense")
    assert prepare(artifact, Trust())["signer"] is None


def test_the_signature_is_checked_before_the_artifact_is_inspected(artifact: Path) -> None:
    artifact.write_bytes(b"no archive at all")
    refused(artifact, trusting(TEAM), "SignatureMissing")
    sign(artifact, OTHER)
    refused(artifact, trusting(TEAM))
    sign(artifact, TEAM)
    refused(artifact, trusting(TEAM), "NotAnArchive")


def test_another_file_s_signature_does_not_count(artifact: Path) -> None:
    other = artifact.with_name("other.pt2")
    other.write_bytes(artifact.read_bytes() + b"\0")
    sign(other, TEAM)
    signature_file(other).rename(signature_file(artifact))
    assert "another file: other.pt2" in refused(artifact, trusting(TEAM))


def test_an_artifact_replaced_after_it_was_signed_is_refused(artifact: Path) -> None:
    sign(artifact, TEAM)
    artifact.write_bytes(artifact.read_bytes().replace(b"linear", b"lineaR"))
    assert "another file" in refused(artifact, trusting(TEAM))


def test_what_is_signed_must_be_what_is_inspected(artifact: Path) -> None:
    sign(artifact, TEAM, torch="2.14.1")
    assert f"says torch 2.14.1, and torch {TORCH}" in refused(artifact, trusting(TEAM))
    sign(artifact, BUILDER, native=True, target="cpu", source=f"sha256:{'0' * 64}")
    assert "plain program" in refused(artifact, trusting(TEAM, builders=(BUILDER,)))


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "cannot be read"), (b"x" * (2 << 20), "at most 1048576 bytes")], ids=["empty", "huge"]
)
def test_a_file_that_is_no_signature_is_refused(artifact: Path, data: bytes, message: str) -> None:
    signature_file(artifact).write_bytes(data)
    assert message in refused(artifact, trusting(TEAM))


class TestARestart:
    """The prepared program is there; the keys may be others than before."""

    def test_starts_at_once_while_the_signer_is_trusted(self, artifact: Path) -> None:
        sign(artifact, TEAM)
        first = prepare(artifact, trusting(TEAM))
        artifact.unlink()
        signature_file(artifact).unlink()
        assert prepare(artifact, trusting(OTHER, TEAM)) == first

    def test_fetches_again_when_the_signer_s_key_was_removed(self, artifact: Path) -> None:
        sign(artifact, TEAM)
        prepare(artifact, trusting(TEAM))
        assert "no trusted key" in refused(artifact, trusting(OTHER))
        sign(artifact, OTHER)
        assert prepare(artifact, trusting(OTHER))["signer"] == OTHER.keyid

    def test_with_the_other_of_two_signers_names_that_one(self, artifact: Path) -> None:
        sign(artifact, TEAM, OTHER)
        prepare(artifact, trusting(TEAM))
        artifact.unlink()
        assert prepare(artifact, trusting(OTHER))["signer"] == OTHER.keyid
        assert read_origin(output(artifact)).signer == OTHER.keyid

    def test_does_not_take_an_unsigned_program_for_a_signed_one(self, artifact: Path) -> None:
        prepare(artifact, Trust())
        refused(artifact, trusting(TEAM), "SignatureMissing")

    def test_believes_the_signature_and_not_the_marker(self, artifact: Path) -> None:
        prepare(artifact, Trust())
        marker = output(artifact) / "prepared.json"
        marker.write_text(json.dumps(json.loads(marker.read_text()) | {"signer": TEAM.keyid}))
        refused(artifact, trusting(TEAM), "SignatureMissing")

    def test_without_keys_names_no_signer(self, artifact: Path) -> None:
        sign(artifact, TEAM)
        prepare(artifact, trusting(TEAM))
        assert prepare(artifact, Trust())["signer"] is None
        assert read_origin(output(artifact)).signer is None

    def test_holds_a_signature_against_the_keys_even_when_none_is_demanded(self, artifact: Path) -> None:
        sign(artifact, TEAM)
        for trusted in (TEAM, TEAM):
            assert prepare(artifact, Trust(False, trusting(trusted).public))["signer"] == TEAM.keyid
        assert "no trusted key" in refused(artifact, Trust(False, trusting(OTHER).public))

    def test_runs_no_native_code_that_nobody_vouches_for(self, artifact: Path) -> None:
        prepare(artifact, Trust())
        marker = output(artifact) / "prepared.json"
        marker.write_text(json.dumps(json.loads(marker.read_text()) | {"native": "cpu"}))
        assert prepare(artifact, Trust())["native"] is None

    def test_leaves_no_older_signature_beside_a_newer_program(self, artifact: Path, exported: bytes) -> None:
        sign(artifact, TEAM)
        prepare(artifact, trusting(TEAM))
        (output(artifact) / "weights.bin").write_bytes(b"short")
        assert prepare(artifact, Trust())["signer"] is None
        assert not (output(artifact) / "signature.json").exists()


def test_a_pod_reports_the_signer() -> None:
    cold = {
        "model": "m",
        "namespace": "n",
        "revision": "r",
        "artifact": {"uri": "file:///m"},
        "device": {"kind": "cpu"},
    }
    pod = Pod(ColdConfig.model_validate(cold), Metrics(), Origin(signer=TEAM.keyid))
    assert pod.report().signer == TEAM.keyid


class Store(http.server.BaseHTTPRequestHandler):
    """Objects by path; what is missing is answered as ``status``."""

    objects: ClassVar[dict[str, bytes]] = {}
    status: ClassVar[int] = 404
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        body = self.objects.get(self.path)
        self.send_response(200 if body is not None else self.status)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """The test's output is for the test."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """The credentials of an S3-like store at ``s3://bucket``."""
    Store.objects, Store.status, Store.seen = {}, 404, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        folder = tmp_path / "credentials"
        folder.mkdir()
        url = f"http://127.0.0.1:{httpd.server_address[1]}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
        }.items():
            (folder / name).write_text(value)
        yield folder
        httpd.shutdown()
        thread.join()


URI = "s3://bucket/team/model%20one.pt2"


def fetched(store: Path, target: Path, trust: Trust) -> dict[str, Any]:
    return run.prepare(URI, target, pinned=None, credentials=store, trust=trust)


def test_the_signature_is_fetched_from_beside_the_object(store: Path, artifact: Path, tmp_path: Path) -> None:
    sign(artifact, TEAM)
    Store.objects = {
        "/bucket/team/model%20one.pt2": artifact.read_bytes(),
        "/bucket/team/model%20one.pt2.sig": signature_file(artifact).read_bytes(),
    }
    assert fetched(store, tmp_path / "out", trusting(TEAM))["signer"] == TEAM.keyid
    assert Store.seen == list(Store.objects)


@pytest.mark.parametrize(("status", "hint"), [(404, "there is no object"), (403, "s3:ListBucket")])
def test_a_store_that_hides_what_is_missing_is_understood(
    store: Path, artifact: Path, tmp_path: Path, status: int, hint: str
) -> None:
    Store.objects, Store.status = {"/bucket/team/model%20one.pt2": artifact.read_bytes()}, status
    with pytest.raises(SignatureError, match=hint) as error:
        fetched(store, tmp_path / "out", trusting(TEAM))
    assert error.value.reason == "SignatureMissing"
    assert f"{URI}.sig" in str(error.value)
    assert fetched(store, tmp_path / "out", Trust(False, trusting(TEAM).public))["signer"] is None


def test_a_store_that_does_not_answer_is_not_taken_for_one_without_a_signature(
    store: Path, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.objects, Store.status = {"/bucket/team/model%20one.pt2": artifact.read_bytes()}, 400
    monkeypatch.setattr("headway_runtime.prepare.fetch.FIRST_DELAY", 0.0)
    with pytest.raises(FetchError, match="the signature could not be fetched") as error:
        fetched(store, tmp_path / "out", Trust(False, trusting(TEAM).public))
    assert error.value.reason == "Unreachable"


class Container:
    """The files that the operator mounts, and a run of the container."""

    def __init__(self, root: Path, artifact: Path) -> None:
        self.root, self.artifact = root, artifact

    def run(self, require: TrustLevel, **folders: Path) -> tuple[int, dict[str, Any]]:
        config = {"model": "m", "namespace": "n", "revision": "r", "device": {"kind": "cpu"}}
        config["artifact"] = {"uri": self.artifact.as_uri(), "require": require}
        (self.root / "config.json").write_text(json.dumps(config))
        options = {"config": "config.json", "output": "model", "termination-log": "term"}
        command = [sys.executable, "-m", "headway_runtime.prepare"]
        command += [part for name, file in options.items() for part in (f"--{name}", str(self.root / file))]
        command += [part for name, path in folders.items() for part in (f"--{name.replace('_', '-')}", str(path))]
        done = subprocess.run(command, capture_output=True, check=False)
        return done.returncode, json.loads((self.root / "term").read_text())


@pytest.fixture
def container(tmp_path: Path, artifact: Path) -> Container:
    return Container(tmp_path, artifact)


def mounted(root: Path, *team: PrivateKey) -> Path:
    root.mkdir()
    for number, key in enumerate(team):
        (root / f"{number}.pub").write_bytes(key.public_pem())
    return root


def test_the_container_reports_the_signer(container: Container) -> None:
    sign(container.artifact, TEAM)
    code, message = container.run(TrustLevel.SIGNATURE, public_keys=mounted(container.root / "keys", OTHER, TEAM))
    assert (code, message["reason"], message["signer"]) == (0, "Prepared", TEAM.keyid)


def test_the_container_trusts_a_builder_s_key_for_plain_programs(container: Container) -> None:
    sign(container.artifact, BUILDER)
    code, message = container.run(TrustLevel.SIGNATURE, builder_keys=mounted(container.root / "keys", BUILDER))
    assert (code, message["signer"]) == (0, BUILDER.keyid)


def test_the_container_says_which_condition_and_field_a_missing_signature_is_about(container: Container) -> None:
    code, message = container.run(TrustLevel.SIGNATURE, public_keys=mounted(container.root / "keys", TEAM))
    assert code == 1
    assert (message["condition"], message["reason"], message["field"]) == (
        "ArtifactVerified",
        "SignatureMissing",
        "spec.artifact.trust",
    )


def test_the_container_names_a_key_file_that_is_none(container: Container) -> None:
    folder = mounted(container.root / "keys", TEAM)
    (folder / "oops.pem").write_bytes(TEAM.private_pem())
    code, message = container.run(TrustLevel.NONE, public_keys=folder)
    assert (code, message["reason"], message["field"]) == (1, "InvalidKeys", "spec.artifact.trust.publicKeys")
    assert "oops.pem holds a private key" in message["message"]
    assert TEAM.private_pem().decode().splitlines()[1] not in message["message"]


def test_the_container_without_trust_serves_anyone_s(container: Container) -> None:
    code, message = container.run(TrustLevel.NONE)
    assert (code, message["reason"]) == (0, "Prepared")
    assert "signer" not in message
