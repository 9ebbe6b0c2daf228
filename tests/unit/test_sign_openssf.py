"""Bundles of the OpenSSF model-signing tools: real ones, made by `openssf/make.py`, and altered ones."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from headway_runtime.prepare.errors import SignatureError
from headway_runtime.prepare.signatures import dsse, keys
from headway_runtime.prepare.signatures.statement import Statement
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import Signed, file_digest, verify

from tests.unit.signing_keys import changed

BUNDLES = Path(__file__).parent / "openssf"
DIGEST = file_digest(BUNDLES / "program.bin")
PUBLIC = {path.stem: keys.read_public_key(path) for path in sorted(BUNDLES.glob("*.pub"))}
EVERYONE = Trust(True, tuple(PUBLIC.values()))

KEY = ec.generate_private_key(ec.SECP256R1())
_PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
OURS = Trust(True, (keys.parse_public_key(_PEM, "ours.pub"),))


def check(text: bytes, trust: Trust = EVERYONE, digest: str = DIGEST) -> Signed:
    return verify(text, digest=digest, trust=trust)


def refused(text: bytes, trust: Trust = EVERYONE, digest: str = DIGEST) -> str:
    with pytest.raises(SignatureError) as error:
        check(text, trust, digest)
    assert error.value.reason == "SignatureInvalid"
    return str(error.value)


def bundle(name: str) -> Any:
    return json.loads((BUNDLES / f"{name}.sig").read_bytes())


def statement(name: str) -> Any:
    return json.loads(base64.b64decode(bundle(name)["dsseEnvelope"]["payload"]))


def signed(statement: Any, name: str = "file-p256") -> bytes:
    """A bundle like the tool's, around another statement, signed by our key."""
    payload = json.dumps(statement).encode()
    sig = KEY.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload), ec.ECDSA(SHA256()))
    document = changed(bundle(name), "dsseEnvelope.payload", base64.b64encode(payload).decode())
    return json.dumps(changed(document, "dsseEnvelope.signatures.0.sig", base64.b64encode(sig).decode())).encode()


@pytest.mark.parametrize("curve", ["p256", "p384", "p521"])
def test_a_bundle_of_one_file_is_verified_with_a_key_of_each_curve(curve: str) -> None:
    found = check((BUNDLES / f"file-{curve}.sig").read_bytes())
    assert found == Signed(PUBLIC[curve].keyid, f"{curve}.pub", False, Statement("program.bin", DIGEST))
    others = Trust(True, tuple(key for name, key in PUBLIC.items() if name != curve))
    assert "no trusted key" in refused((BUNDLES / f"file-{curve}.sig").read_bytes(), others)


def test_a_bundle_of_a_directory_speaks_for_each_of_its_files() -> None:
    text = (BUNDLES / "directory-p521.sig").read_bytes()
    assert check(text).statement == Statement("team-model/a/program.bin", DIGEST)
    weights = f"sha256:{hashlib.sha256(bytes(70)).hexdigest()}"
    assert check(text, digest=weights).statement.name == "team-model/b.bin"


def test_a_file_that_is_not_in_the_bundle_is_refused_with_what_is() -> None:
    for name in ("file-p256", "directory-p521"):
        message = refused((BUNDLES / f"{name}.sig").read_bytes(), digest=f"sha256:{'0' * 64}")
        assert "none of the" in message
        assert "signed files" in message
    root = f"sha256:{statement('file-p256')['subject'][0]['digest']['sha256']}"
    assert "none of the 1 signed files" in refused((BUNDLES / "file-p256.sig").read_bytes(), digest=root)


def test_a_bundle_says_nothing_of_native_code_even_with_a_builder_s_key() -> None:
    builder = Trust(True, (), (PUBLIC["p256"],))
    found = check((BUNDLES / "file-p256.sig").read_bytes(), builder)
    assert (found.builder, found.statement.native, found.statement.torch) == (True, False, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("certificate", "signed with a certificate"),
        ("blake3", "hashed as files with blake3"),
        ("shards", "hashed as shards with sha256"),
    ],
)
def test_what_a_pod_cannot_check_is_refused_with_what_to_do(name: str, message: str) -> None:
    said = refused((BUNDLES / f"{name}.sig").read_bytes())
    assert message in said
    assert "sign with" in said


def test_a_keyless_bundle_is_refused_with_what_to_do() -> None:
    material = {"certificate": {"rawBytes": "MIIB"}, "tlogEntries": [{"logIndex": "1"}]}
    said = refused(json.dumps(changed(bundle("file-p256"), "verificationMaterial", material)).encode())
    assert "transparency log" in said
    assert "model_signing sign key" in said


@pytest.mark.parametrize(
    ("where", "new", "message"),
    [
        ("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.2", "the bundle is of type"),
        ("mediaType", {}, "the bundle is of type"),
        ("verificationMaterial", [], "not a JSON object"),
        ("verificationMaterial", {}, "lacks publicKey"),
        ("verificationMaterial.trust", "me", "unknown fields: trust"),
        ("dsseEnvelope", ..., "no DSSE envelope"),
        ("dsseEnvelope", None, "not a JSON object"),
        ("messageSignature", {}, "no DSSE envelope"),
        ("dsseEnvelope.signatures", [], "no signature"),
        ("dsseEnvelope.signatures", lambda s: s * 2, "exactly one signature"),
        ("dsseEnvelope.payloadType", "text/plain", "is of type text/plain"),
        ("dsseEnvelope.payload", base64.b64encode(b"{}").decode(), "no trusted key"),
        ("payload", "x", "unknown fields: payload"),
    ],
)
def test_a_bundle_of_another_form_is_refused(where: str, new: Any, message: str) -> None:
    assert message in refused(json.dumps(changed(bundle("file-p256"), where, new)).encode())


@pytest.mark.parametrize(
    ("where", "new"), [("publicKey.hint", "00" * 32), ("publicKey.hint", ...), ("tlogEntries", ...)]
)
def test_what_is_not_signed_decides_nothing(where: str, new: Any) -> None:
    text = json.dumps(changed(bundle("file-p256"), f"verificationMaterial.{where}", new)).encode()
    assert check(text).key == "p256.pub"


OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.mark.parametrize(
    ("where", "new", "message"),
    [
        ("_type", "https://in-toto.io/Statement/v0.1", "is of type"),
        ("predicateType", "https://model_signing/Digests/v0.1", "older than 1.0"),
        ("predicateType", "https://headway.dev/artifact/v1", "is a https://headway.dev"),
        ("subject", lambda s: s * 2, "at most 1"),
        ("subject.0.digest.sha256", OTHER, "contradicts itself"),
        ("predicate.resources", [], "contradicts itself"),
        ("predicate.resources.0.digest", OTHER, "contradicts itself"),
        ("predicate.resources.0.digest", lambda d: d.upper(), "64 lower-case"),
        ("predicate.resources.0.digest", "", "64 lower-case"),
        ("predicate.resources.0.algorithm", "blake3", "not by its sha256"),
        ("predicate.resources.0.extra", 1, "unknown fields: extra"),
        ("predicate.resources.0", "x", "not a JSON object"),
        ("predicate.resources", lambda r: r[:2], "contradicts itself"),
        ("predicate.resources", lambda r: r[::-1], "contradicts itself"),
        ("predicate.resources", lambda r: [*r, r[0]], "listed twice"),
        ("predicate.resources", lambda r: r * 1400, "at most 4096"),
        ("predicate.resources", {}, "not a list"),
        ("predicate", [], "lacks serialization or resources"),
        ("predicate.serialization", ..., "lacks serialization or resources"),
        ("predicate.serialization.method", "tensors", "hashed as tensors"),
        ("predicate.serialization.salt", "x", "unknown fields: salt"),
    ],
)
def test_a_signed_manifest_of_another_form_is_refused(where: str, new: Any, message: str) -> None:
    assert message in refused(signed(changed(statement("directory-p521"), where, new)), OURS)


def test_fields_that_the_predicate_s_specification_leaves_open_are_ignored() -> None:
    assert (
        check(signed(changed(statement("directory-p521"), "predicate.card", {"license": "x"})), OURS).key == "ours.pub"
    )


def test_the_two_forms_do_not_stand_in_for_each_other() -> None:
    bare = json.dumps(json.loads(signed(statement("file-p256")))["dsseEnvelope"]).encode()
    assert "not a https://headway.dev/artifact/v1" in refused(bare, OURS)
    ours = json.loads(Statement("model.pt2", DIGEST, "2.15.0").payload())
    assert "not a https://model_signing" in refused(signed(ours), OURS)


@pytest.mark.parametrize("name", ["file-p256", "directory-p521"])
def test_no_digit_of_a_signed_manifest_can_be_changed(name: str) -> None:
    honest = bundle(name)
    payload = base64.b64decode(honest["dsseEnvelope"]["payload"])
    change: Callable[[int], bytes] = lambda at: payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]  # noqa: E731
    for at in range(0, len(payload), 7):
        text = changed(honest, "dsseEnvelope.payload", base64.b64encode(change(at)).decode())
        assert "no trusted key" in refused(json.dumps(text).encode())
