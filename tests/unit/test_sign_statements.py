"""Signing a file and verifying the signature: who, what, and every way in which it is not what it seems."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from headway_runtime.prepare.errors import SignatureError
from headway_runtime.prepare.signatures import dsse, keys
from headway_runtime.prepare.signatures.statement import Statement
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import MAX_BYTES, Signed, file_digest, sign_statement, verify
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.signing_keys import DATA, changed, envelope, file, said, trusting

DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
SOURCE = f"sha256:{'ab' * 32}"
TEAM, OTHER, BUILDER = keys.generate(), keys.generate(), keys.generate()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file(tmp_path_factory.mktemp("signed"))


@pytest.fixture(scope="module")
def signature(path: Path) -> bytes:
    return sign_statement(path, TEAM, torch="2.15.0")


def check(signature: bytes, trust: Trust = trusting(TEAM), digest: str = DIGEST) -> Signed:  # noqa: B008  # frozen
    return verify(signature, digest=digest, trust=trust)


def refused(signature: bytes, trust: Trust = trusting(TEAM), digest: str = DIGEST) -> str:  # noqa: B008
    with pytest.raises(SignatureError) as error:
        check(signature, trust, digest)
    assert (error.value.reason, error.value.condition, error.value.field) == (
        "SignatureInvalid",
        "ArtifactVerified",
        "spec.artifact.trust",
    )
    return str(error.value)


def test_a_signature_says_who_signed_which_file_and_what_it_is(signature: bytes, path: Path) -> None:
    found = check(signature)
    assert found == Signed(TEAM.keyid, "team-0.pub", False, Statement("model.pt2", DIGEST, "2.15.0"))
    assert file_digest(path) == DIGEST


def test_the_statement_is_an_in_toto_statement(signature: bytes) -> None:
    assert said(signature) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "model.pt2", "digest": {"sha256": DIGEST.removeprefix("sha256:")}}],
        "predicateType": "https://headway.dev/artifact/v1",
        "predicate": {"torch": "2.15.0", "native": False},
    }


def test_the_encoding_that_is_signed_is_that_of_the_specification() -> None:
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"  # the test vector of DSSE's protocol.md
    )
    assert dsse.pae("\u00e9", b"\xff\0") == b"DSSEv1 2 \xc3\xa9 2 \xff\0"


def test_keys_rotate_by_trusting_both_and_then_the_new_one(path: Path, signature: bytes) -> None:
    new = sign_statement(path, OTHER, torch="2.15.0")
    for signed, key in ((signature, TEAM), (new, OTHER)):
        assert check(signed, trusting(TEAM, OTHER)).keyid == key.keyid
    assert check(new, trusting(OTHER)).keyid == OTHER.keyid
    assert "no trusted key" in refused(signature, trusting(OTHER))


def test_a_file_signed_by_two_keys_needs_only_one_of_them(path: Path) -> None:
    both = sign_statement(path, TEAM, OTHER, torch="2.15.0")
    assert check(both, trusting(TEAM)).keyid == TEAM.keyid
    assert check(both, trusting(OTHER)).keyid == OTHER.keyid
    assert "no trusted key" in refused(both, trusting(BUILDER))


def test_a_builder_s_key_signs_compiled_programs_and_plain_ones(path: Path) -> None:
    compiled = sign_statement(path, BUILDER, torch="2.15.0", native=True, target="cpu avx2", source=SOURCE)
    found = check(compiled, trusting(TEAM, builders=(BUILDER,)))
    assert found.builder
    assert found.statement == Statement("model.pt2", DIGEST, "2.15.0", True, "cpu avx2", SOURCE)
    plain = check(sign_statement(path, BUILDER, torch="2.15.0"), trusting(TEAM, builders=(BUILDER,)))
    assert (plain.builder, plain.statement.native) == (True, False)


def test_only_a_builder_s_key_may_claim_native_code(path: Path) -> None:
    compiled = sign_statement(path, TEAM, torch="2.15.0", native=True, target="cpu", source=SOURCE)
    assert "builderKeys" in refused(compiled, trusting(TEAM, builders=(BUILDER,)))
    both = sign_statement(path, TEAM, BUILDER, torch="2.15.0", native=True, target="cpu", source=SOURCE)
    assert check(both, trusting(TEAM, builders=(BUILDER,))).keyid == BUILDER.keyid


@pytest.mark.parametrize(
    "claims",
    [
        {"native": True},
        {"native": True, "target": "cpu"},
        {"native": True, "source": SOURCE, "target": ""},
        {"native": True, "source": "sha256:ab", "target": "cpu"},
        {"native": False, "target": "cpu", "source": SOURCE},
        {"torch": "latest"},
    ],
)
def test_nothing_is_signed_that_would_be_refused(path: Path, claims: dict[str, Any]) -> None:
    with pytest.raises(SignatureError):
        sign_statement(path, TEAM, **{"torch": "2.15.0", **claims})


def test_the_signature_of_another_file_names_both(signature: bytes) -> None:
    other = f"sha256:{'0' * 64}"
    message = refused(signature, digest=other)
    assert "another file: model.pt2" in message
    assert DIGEST in message
    assert other in message


def test_a_key_id_decides_nothing(signature: bytes) -> None:
    document = json.loads(signature)
    for keyid in (OTHER.keyid, "", "whatever"):
        assert check(json.dumps(changed(document, "signatures.0.keyid", keyid)).encode()).keyid == TEAM.keyid
    assert check(json.dumps(changed(document, "signatures.0.keyid", ...)).encode()).keyid == TEAM.keyid
    lied = changed(document, "signatures.0.keyid", OTHER.keyid)
    assert "no trusted key" in refused(json.dumps(lied).encode(), trusting(OTHER))


def test_a_refusal_names_the_keys_that_were_tried(signature: bytes) -> None:
    message = refused(signature, trusting(OTHER))
    assert TEAM.keyid in message
    assert f"team-0.pub ({OTHER.keyid})" in message
    assert "empty or missing" in refused(signature, Trust(required=True))


STATEMENT_CHANGES = [
    ("_type", "https://in-toto.io/Statement/v0.1", "is of type"),
    ("subject", [], "about nothing"),
    ("subject", lambda s: s * 2, "at most 1"),
    ("subject.0.name", "", "subject's name"),
    ("subject.0.name", "a\u202eb", "subject's name"),
    ("subject.0.name", "x" * 2000, "subject's name"),
    ("subject.0.uri", "https://elsewhere", "unknown fields: uri"),
    ("subject.0.digest.sha512", "00", "unknown fields: sha512"),
    ("subject.0.digest", {"sha1": "00" * 20}, "lacks sha256"),
    ("subject.0.digest.sha256", lambda d: d.upper(), "64 lower-case"),
    ("subject.0.digest.sha256", lambda d: d + "\n", "64 lower-case"),
    ("subject.0.digest.sha256", 7, "64 lower-case"),
    ("predicateType", "https://slsa.dev/provenance/v1", "is a https://slsa.dev"),
    ("predicateType", "https://model_signing/signature/v1.0", "is a https://model_signing"),
    ("predicate", None, "not a JSON object"),
    ("predicate.native", ..., "lacks native"),
    ("predicate.native", "false", "neither true nor false"),
    ("predicate.native", 0, "neither true nor false"),
    ("predicate.native", None, "neither true nor false"),
    ("predicate.native", True, "lacks source, target"),
    ("predicate.target", "cpu", "unknown fields: target"),
    ("predicate.torch", ..., "lacks torch"),
    ("predicate.torch", "2", "no version"),
    ("predicate.torch", "2.15.0\n", "no version"),
    ("predicate.expires", "2099", "unknown fields: expires"),
    ("extra", 1, "unknown fields: extra"),
]


@pytest.mark.parametrize(("where", "new", "message"), STATEMENT_CHANGES)
def test_a_signed_statement_of_another_form_is_refused(signature: bytes, where: str, new: Any, message: str) -> None:
    assert message in refused(envelope(changed(said(signature), where, new), TEAM))


@pytest.mark.parametrize(("where", "new", "message"), STATEMENT_CHANGES)
def test_a_statement_changed_after_it_was_signed_is_nobody_s(
    signature: bytes, where: str, new: Any, message: str
) -> None:
    altered = json.dumps(changed(said(signature), where, new)).encode()
    text = changed(json.loads(signature), "payload", base64.b64encode(altered).decode())
    assert "no trusted key" in refused(json.dumps(text).encode())


@pytest.mark.parametrize(
    ("where", "new", "message"),
    [
        ("payloadType", "application/json", "is of type application/json"),
        ("payloadType", ["application/vnd.in-toto+json"], "is of type"),
        ("payloadType", None, "is of type"),
        ("signatures", [], "holds no signature"),
        ("signatures", {}, "not a list"),
        ("signatures", lambda s: s * 17, "at most 16"),
        ("signatures.0", "x", "not a JSON object"),
        ("signatures.0.sig", ..., "lacks sig"),
        ("signatures.0.sig", "", "printable"),
        ("signatures.0.sig", 7, "printable"),
        ("signatures.0.sig", lambda s: s + "\n", "printable"),
        ("signatures.0.sig", lambda s: s.rstrip("="), "not base64"),
        ("signatures.0.sig", lambda s: s + "====", "not base64"),
        ("signatures.0.sig", lambda s: s[:-3] + "x==", "canonical"),
        ("signatures.0.keyid", "x" * 300, "keyid"),
        ("signatures.0.keyid", None, "keyid"),
        ("signatures.0.cert", "x", "unknown fields: cert"),
        ("payload", ..., "lacks payload"),
        ("payload", lambda s: s.replace("e", "-", 1), "not base64"),
        ("payload", lambda s: f" {s}", "not base64"),
        ("nonce", 1, "unknown fields: nonce"),
    ],
)
def test_an_envelope_of_another_form_is_refused(signature: bytes, where: str, new: Any, message: str) -> None:
    text = json.dumps(changed(json.loads(signature), where, new)).encode()
    assert message in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"<html>not found</html>", "cannot be read"),
        (b"[]", "neither a DSSE envelope"),
        (b"7", "neither a DSSE envelope"),
        (b"{}", "neither a DSSE envelope"),
        (b'{"payloadType": NaN}', "cannot be read"),
        (b'{"payloadType": 1, "payloadType": 2}', "same key twice"),
        (b"[" * 1000, "cannot be read"),
        (b" " * (MAX_BYTES + 1), "at most 1048576 bytes"),
    ],
)
def test_what_is_no_signature_file_is_said_to_be_none(text: bytes, message: str) -> None:
    assert message in refused(text)


def test_a_statement_that_two_readers_would_read_differently_is_refused(signature: bytes) -> None:
    payload = base64.b64decode(json.loads(signature)["payload"])
    twice = payload.replace(b'"native":false', b'"native":true,"native":false')
    assert twice != payload
    assert "same key twice" in refused(envelope(twice, TEAM))


def test_a_signature_of_the_payload_alone_does_not_count(signature: bytes) -> None:
    document = json.loads(signature)
    bare = base64.b64encode(TEAM.key.sign(base64.b64decode(document["payload"]))).decode()
    assert "no trusted key" in refused(json.dumps(changed(document, "signatures.0.sig", bare)).encode())


def test_a_payload_signed_as_another_type_does_not_count(signature: bytes) -> None:
    document = json.loads(signature)
    message = dsse.pae("application/json", base64.b64decode(document["payload"]))
    sig = base64.b64encode(TEAM.key.sign(message)).decode()
    assert "no trusted key" in refused(json.dumps(changed(document, "signatures.0.sig", sig)).encode())


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda c: c.name)
def test_ecdsa_keys_verify_with_the_hash_of_their_curve(signature: bytes, curve: ec.EllipticCurve) -> None:
    private = ec.generate_private_key(curve)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    trust = Trust(True, (keys.parse_public_key(pem, "ec.pub"),))
    document = json.loads(signature)
    message = dsse.pae(dsse.PAYLOAD_TYPE, base64.b64decode(document["payload"]))
    size = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
    for algorithm in size.values():
        sig = base64.b64encode(private.sign(message, ec.ECDSA(algorithm))).decode()
        text = json.dumps(changed(document, "signatures.0.sig", sig)).encode()
        if algorithm is size[curve.key_size]:
            assert check(text, trust).key == "ec.pub"
        else:
            assert "no trusted key" in refused(text, trust)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELD = st.sampled_from(
    [
        "payload",
        "payloadType",
        "signatures",
        "sig",
        "keyid",
        "_type",
        "subject",
        "digest",
        "sha256",
        "predicate",
        "torch",
    ]
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_text_is_a_signature_by_chance(text: bytes) -> None:
    refused(text)


@given(st.dictionaries(FIELD, JSON | st.just("application/vnd.in-toto+json"), max_size=6))
def test_no_signed_document_is_taken_for_a_statement_by_chance(document: dict[str, Any]) -> None:
    refused(envelope(document, TEAM))


@given(at=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_no_bit_of_a_signature_file_can_change_what_it_says(at: int, bit: int) -> None:
    honest = _honest()
    altered = bytearray(honest)
    altered[at % len(honest)] ^= 1 << bit
    try:
        found = check(bytes(altered))
    except SignatureError:
        return
    assert found == check(honest)  # a key id, or white space: what is not signed and decides nothing


def _honest(cache: list[bytes] = []) -> bytes:  # noqa: B006  # made once
    if not cache:
        statement = Statement("model.pt2", DIGEST, "2.15.0")
        cache.append(json.dumps(dsse.sign(statement.payload(), [TEAM]), indent=1).encode())
    return cache[0]
