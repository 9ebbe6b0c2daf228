"""Key files: what is read from a mounted Secret, and what a wrong file is told."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from headway_api.types import TrustLevel
from headway_runtime.prepare.errors import KeyFileError
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.trust import read_trust

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on this machine")
TEAM, OTHER = keys.generate(), keys.generate()


def pem(key: "rsa.RSAPrivateKey | dsa.DSAPrivateKey | ec.EllipticCurvePrivateKey") -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def mounted(root: Path, **files: bytes) -> Path:
    """A Secret as the kubelet mounts it: links to a folder of one version, itself a link."""
    version = root / "..2026_11_29_22_00_00.1"
    version.mkdir(parents=True)
    (root / "..data").symlink_to(version.name)
    for name, data in files.items():
        (version / name).write_bytes(data)
        (root / name).symlink_to(f"..data/{name}")
    return root


def test_keys_are_read_from_a_mounted_secret_by_file_name(tmp_path: Path) -> None:
    folder = mounted(tmp_path / "keys", b=OTHER.public_pem(), a=TEAM.public_pem())
    trust = read_trust(TrustLevel.SIGNATURE, folder, tmp_path / "nowhere")
    assert [(key.name, key.keyid) for key in trust.public] == [("a", TEAM.keyid), ("b", OTHER.keyid)]
    assert (trust.required, trust.builders, trust.asks) == (True, (), True)


def test_without_keys_and_without_a_demand_no_signature_is_looked_for(tmp_path: Path) -> None:
    assert not read_trust(TrustLevel.NONE, None, None).asks
    assert not read_trust(TrustLevel.NONE, tmp_path / "nowhere", tmp_path / "nowhere").asks
    assert read_trust(TrustLevel.SIGNATURE, None, None).asks
    assert read_trust(TrustLevel.NONE, None, mounted(tmp_path / "keys", a=TEAM.public_pem())).asks


@openssl
def test_the_id_of_a_key_is_what_openssl_says_of_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(TEAM.private_pem())
    command = "openssl pkey -in key -pubout -outform DER | sha256sum"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == TEAM.keyid


@openssl
def test_a_key_made_by_openssl_signs_and_is_trusted(tmp_path: Path) -> None:
    for command in ("openssl genpkey -algorithm ed25519 -out key", "openssl pkey -in key -pubout -out key.pub"):
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    private = keys.read_private_key(tmp_path / "key")
    assert keys.read_public_key(tmp_path / "key.pub").verifies(private.key.sign(b"x"), b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TEAM.private_pem(), "holds a private key"),
        (TEAM.private_pem(b"secret"), "holds a private key"),
        (TEAM.public_pem() + TEAM.private_pem(), "holds a private key"),
        (TEAM.public_pem() + OTHER.public_pem(), "exactly one PUBLIC KEY block"),
        (b"", "holds no key in PEM form"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI someone", "holds no key in PEM form"),
        (b"\xff\0" * 100, "holds no key in PEM form"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is a certificate"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
        (b"-----BEGIN PUBLIC KEY-----\n", "cannot be read"),
        (pem(rsa.generate_private_key(65537, 2048)), "is a key of the kind RSA; it must be Ed25519, or ECDSA"),
        (pem(dsa.generate_private_key(1024)), "is a key of the kind DSA"),
        (pem(ec.generate_private_key(ec.SECP256K1())), "curve secp256k1"),
        (pem(ec.generate_private_key(ec.SECP224R1())), "curve secp224r1"),
        (b"x" * 70_000, "more than 65536 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_key_is_named_and_not_repeated(data: bytes, message: str, tmp_path: Path) -> None:
    folder = mounted(tmp_path / "keys", good=TEAM.public_pem(), wrong=data)
    with pytest.raises(KeyFileError, match=message) as error:
        read_trust(TrustLevel.NONE, folder, None)
    assert (error.value.reason, error.value.field) == ("InvalidKeys", "spec.artifact.trust.publicKeys")
    assert str(error.value).startswith("wrong ")
    assert not any(line.decode(errors="replace") in str(error.value) for line in data.splitlines()[1:-1] if line)


def test_a_wrong_builder_s_key_names_its_own_field(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError) as error:
        read_trust(TrustLevel.NONE, None, mounted(tmp_path / "keys", wrong=b"x"))
    assert error.value.field == "spec.artifact.trust.builderKeys"


def test_a_folder_or_a_dangling_link_among_the_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(KeyFileError, match="folder is not a file"):
        read_trust(TrustLevel.NONE, tmp_path, None)
    (tmp_path / "folder").rmdir()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(KeyFileError, match="link is not a file"):
        read_trust(TrustLevel.NONE, tmp_path, None)


def test_more_keys_than_any_team_has_are_refused(tmp_path: Path) -> None:
    for number in range(keys.MAX_KEYS + 1):
        (tmp_path / f"{number}.pub").write_bytes(TEAM.public_pem())
    with pytest.raises(KeyFileError, match="at most 64"):
        read_trust(TrustLevel.NONE, tmp_path, None)


def test_an_encrypted_key_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(TEAM.private_pem(b"open sesame"))
    assert keys.read_private_key(path, passphrase=b"open sesame").keyid == TEAM.keyid
    with pytest.raises(keys.PassphraseNeeded):
        keys.read_private_key(path)
    with pytest.raises(KeyFileError, match="that the passphrase opens"):
        keys.read_private_key(path, passphrase=b"guess")
    path.write_bytes(TEAM.private_pem())
    assert keys.read_private_key(path, passphrase=b"not needed").keyid == TEAM.keyid


@pytest.mark.parametrize(
    "data",
    [
        TEAM.public_pem(),
        b"",
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
    ids=["public", "empty", "rsa", "ecdsa"],
)
def test_only_ed25519_keys_sign(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(KeyFileError, match=r"key (does not hold|is no Ed25519)"):
        keys.read_private_key(tmp_path / "key")


def test_nothing_of_a_private_key_is_printed() -> None:
    assert repr(TEAM) == f"PrivateKey(keyid={TEAM.keyid!r})"
