"""`headway keygen`, `sign` and `verify`, as they are typed."""

import os
import select
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from headway_runtime.cli import app
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.verify import sign_statement
from typer.testing import CliRunner

TORCH = torch.__version__.partition("+")[0]


def headway(*arguments: object, code: int = 0, **environment: str) -> str:
    result: Result = CliRunner().invoke(
        app, [str(a) for a in arguments], env={"HEADWAY_PASSPHRASE": None, **environment}
    )
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)), path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, exported: bytes) -> Path:
    (tmp_path / "model.pt2").write_bytes(exported)
    headway("keygen", tmp_path / "team")
    return tmp_path


def test_a_program_is_signed_and_verified(folder: Path) -> None:
    keyid = keys.read_public_key(folder / "team.pub").keyid
    assert keyid in headway("sign", folder / "model.pt2", "--key", folder / "team")
    said = headway("verify", folder / "model.pt2", "--key", folder / "team.pub")
    assert "model.pt2: signed by team.pub" in said
    assert f"key: {keyid}\n" in said
    assert f"torch: {TORCH}\n" in said
    assert "native: no\n" in said


def test_one_of_several_keys_verifies_and_another_s_does_not(folder: Path) -> None:
    headway("keygen", folder / "other")
    headway("sign", folder / "model.pt2", "--key", folder / "team")
    both = ("--key", folder / "other.pub", "--key", folder / "team.pub")
    assert "signed by team.pub" in headway("verify", folder / "model.pt2", *both)
    said = headway("verify", folder / "model.pt2", "--key", folder / "other.pub", code=1)
    assert "SignatureInvalid: no trusted key" in said


def test_two_keys_sign_one_file_while_one_replaces_the_other(folder: Path) -> None:
    headway("keygen", folder / "new")
    headway("sign", folder / "model.pt2", "--key", folder / "team", "--key", folder / "new")
    for name in ("team", "new"):
        assert f"signed by {name}.pub" in headway("verify", folder / "model.pt2", "--key", folder / f"{name}.pub")


def test_the_signature_may_lie_elsewhere(folder: Path) -> None:
    headway("sign", folder / "model.pt2", "--key", folder / "team", "--output", folder / "x.json")
    headway("verify", folder / "model.pt2", "--key", folder / "team.pub", "--signature", folder / "x.json")
    said = headway("verify", folder / "model.pt2", "--key", folder / "team.pub", code=1)
    assert "SignatureMissing" in said
    assert "model.pt2.sig; headway sign makes one" in said


def test_a_compiled_program_is_verified_by_a_builder_s_key_only(folder: Path) -> None:
    key = keys.read_private_key(folder / "team")
    claims: dict[str, Any] = {"native": True, "target": "cpu-avx2", "source": f"sha256:{'0' * 64}"}
    (folder / "model.pt2.sig").write_bytes(sign_statement(folder / "model.pt2", key, torch=TORCH, **claims))
    said = headway("verify", folder / "model.pt2", "--builder-key", folder / "team.pub")
    assert "(a builder)" in said
    assert f"native: compiled for cpu-avx2 from sha256:{'0' * 64}" in said
    assert "builderKeys" in headway("verify", folder / "model.pt2", "--key", folder / "team.pub", code=1)


def test_what_a_pod_would_refuse_is_not_signed(folder: Path) -> None:
    data = (folder / "model.pt2").read_bytes()
    (folder / "model.pt2").write_bytes(data.replace(b"aten.linear", b"aten.lineax"))
    said = headway("sign", folder / "model.pt2", "--key", folder / "team", code=1)
    assert "not signed (UnsafeArtifact)" in said
    assert "archive.crc" in said
    assert not (folder / "model.pt2.sig").exists()


def test_a_file_that_changes_while_it_is_signed_is_not_signed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway_runtime.prepare.signatures import verify

    def replaced(path: Path) -> str:
        path.write_bytes(b"another file")
        return "sha256:" + "0" * 64

    monkeypatch.setattr(verify, "file_digest", replaced)
    assert "changed while it was signed" in headway("sign", folder / "model.pt2", "--key", folder / "team", code=1)
    assert not (folder / "model.pt2.sig").exists()


def test_a_public_key_does_not_sign_and_a_private_key_does_not_verify(folder: Path) -> None:
    said = headway("sign", folder / "model.pt2", "--key", folder / "team.pub", code=1)
    assert "team.pub does not hold a private key" in said
    headway("sign", folder / "model.pt2", "--key", folder / "team")
    assert "team holds a private key" in headway("verify", folder / "model.pt2", "--key", folder / "team", code=1)


def test_without_a_key_there_is_nothing_to_verify(folder: Path) -> None:
    assert "--builder-key" in headway("verify", folder / "model.pt2", code=2)


def test_a_new_private_key_is_its_owner_s_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        headway("keygen", folder / "mine")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "mine").stat().st_mode) == 0o600
    assert (folder / "mine").read_text().startswith("-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize("there", ["team", "team.pub", "link"])
def test_no_key_is_overwritten(folder: Path, there: str) -> None:
    if there == "link":
        for name in ("team", "team.pub"):
            (folder / name).unlink()
        (folder / "team").symlink_to(folder / "nowhere")
    else:
        (folder / ({"team", "team.pub"} - {there}).pop()).unlink()
    before = sorted((p.name, p.is_symlink() or p.read_bytes()) for p in folder.iterdir())
    assert "exists and is not overwritten" in headway("keygen", folder / "team", code=1)
    assert sorted((p.name, p.is_symlink() or p.read_bytes()) for p in folder.iterdir()) == before


def test_an_encrypted_key_signs_with_the_passphrase_of_the_environment(folder: Path) -> None:
    headway("keygen", folder / "safe", "--encrypt", HEADWAY_PASSPHRASE="open sesame")
    assert (folder / "safe").read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    sign = ("sign", folder / "model.pt2", "--key", folder / "safe")
    assert "set HEADWAY_PASSPHRASE" in headway(*sign, code=1)
    assert "that the passphrase opens" in headway(*sign, code=1, HEADWAY_PASSPHRASE="guess")
    headway(*sign, HEADWAY_PASSPHRASE="open sesame")
    headway("verify", folder / "model.pt2", "--key", folder / "safe.pub")


def test_a_person_at_a_terminal_is_asked_for_the_passphrase(folder: Path) -> None:
    ours, terminal = os.openpty()
    command = [sys.executable, "-c", "from headway_runtime.cli import main; main()", "keygen", "--encrypt"]
    process = subprocess.Popen(
        [*command, str(folder / "asked")], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    said = b""
    try:
        while select.select([ours], [], [], 30)[0]:
            said += os.read(ours, 1024)
            if said.endswith((b"Passphrase: ", b"confirmation: ")):
                os.write(ours, b"open sesame\n")
    except OSError:  # what Linux says when the other end is closed
        pass
    finally:
        process.kill()
        os.close(ours)
    assert process.wait() == 0, said
    assert b"sesame" not in said
    assert keys.read_private_key(folder / "asked", passphrase=b"open sesame")
