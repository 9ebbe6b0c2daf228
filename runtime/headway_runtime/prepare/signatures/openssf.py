"""Bundles of the OpenSSF model-signing tools (PyPI model-signing 1.x, ``model_signing sign key``), as far as a key can
check them.

A bundle (Sigstore's, v0.3) holds a DSSE envelope around an in-toto statement of type
``https://model_signing/signature/v1.0``. Its predicate lists the files of a model with their digests, and its subject's
digest is the SHA-256 of those digests, as bytes, in that order. A model of one file is listed as ``"."``; of a
directory, each file by its path. The artifact is one file: its digest must be in the list. Which one does not matter:
the signer vouches for each of them, and a name is not what was fetched.

Bundles with a certificate (``sign certificate``, or ``sign sigstore``: keyless, with a transparency log) are refused:
what they prove is an identity at a time, and checking that needs roots and a log that a pod does not have.
"""

import hashlib
from typing import Any

from headway_runtime.prepare.errors import printable
from headway_runtime.prepare.signatures import dsse
from headway_runtime.prepare.signatures.malformed import fields, invalid, items, parse, text
from headway_runtime.prepare.signatures.statement import MAX_NAME, Statement, hex_digest, open_statement

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MAX_RESOURCES = 4096

_OLD_PREDICATE = "https://model_signing/Digests/v0.1"
_CERTIFICATES = ("certificate", "x509CertificateChain")


def open_bundle(value: Any) -> dsse.Envelope:
    """The envelope in a bundle. Raises SignatureError."""
    fields(
        value,
        "the bundle",
        required={"mediaType", "verificationMaterial"},
        optional={"dsseEnvelope", "messageSignature"},
    )
    if value["mediaType"] != MEDIA_TYPE:
        raise invalid(f"the bundle is of type {printable(value['mediaType'], 80)}, not {MEDIA_TYPE}")
    material = value["verificationMaterial"]
    if isinstance(material, dict) and any(kind in material for kind in _CERTIFICATES):
        raise invalid(
            "the bundle was signed with a certificate (model_signing sign sigstore or sign certificate), which proves "
            "an identity by a transparency log or a root that a pod does not have; sign with a key: model_signing sign "
            "key"
        )
    if "dsseEnvelope" not in value or "messageSignature" in value:
        raise invalid("the bundle holds no DSSE envelope; sign with model_signing sign key")
    optional = {"tlogEntries", "timestampVerificationData"}
    fields(material, "the bundle's verificationMaterial", required={"publicKey"}, optional=optional)
    # Its hint names a key, unsigned, and a log entry proves nothing that the key does not: neither decides anything.
    envelope = dsse.parse(value["dsseEnvelope"])
    if len(envelope.signatures) != 1:
        raise invalid("a bundle holds exactly one signature")
    return envelope


def read(payload: bytes, digest: str) -> Statement:
    """What the bundle says of the file with ``digest`` (``sha256:<hex>``). Raises SignatureError when it does not speak
    of it.
    """
    predicate_type, name, root, predicate = open_statement(parse(payload, "the signed statement"))
    if predicate_type == _OLD_PREDICATE:
        raise invalid("the bundle was made by model-signing older than 1.0; sign again with 1.0 or later")
    if predicate_type != PREDICATE_TYPE:
        raise invalid(f"the bundle's statement is a {printable(predicate_type, 80)}, not a {PREDICATE_TYPE}")
    digests = _resources(predicate)
    if root != f"sha256:{hashlib.sha256(b''.join(map(bytes.fromhex, digests.values()))).hexdigest()}":
        raise invalid("the subject's digest is not that of the listed files: the bundle contradicts itself")
    for path, listed in digests.items():
        if f"sha256:{listed}" == digest:
            return Statement(name if path == "." else f"{name}/{path}", digest)
    files = ", ".join(f"{printable(path, 60)} (sha256:{listed})" for path, listed in list(digests.items())[:3])
    raise invalid(f"the artifact has digest {digest}, which is none of the {len(digests)} signed files: {files}")


def _resources(predicate: Any) -> dict[str, str]:
    """Path -> hexadecimal SHA-256, in order. Fields of the predicate that are neither ``serialization`` nor
    ``resources`` are ignored: its specification asks verifiers for that.
    """
    if not isinstance(predicate, dict) or not {"serialization", "resources"} <= predicate.keys():
        raise invalid("the bundle's predicate lacks serialization or resources")
    serialization = predicate["serialization"]
    fields(
        serialization,
        "serialization",
        required={"method", "hash_type", "allow_symlinks"},
        optional={"ignore_paths", "shard_size"},
    )
    if (serialization["method"], serialization["hash_type"]) != ("files", "sha256"):
        raise invalid(
            f"the files were hashed as {printable(serialization['method'], 20)} with "
            f"{printable(serialization['hash_type'], 20)}, which cannot be compared with the artifact's SHA-256; sign "
            "with the defaults of model_signing (whole files, sha256)"
        )
    digests: dict[str, str] = {}
    for resource in items(predicate["resources"], "resources", MAX_RESOURCES):
        fields(resource, "a resource", required={"name", "algorithm", "digest"})
        path = text(resource["name"], "a resource's name", MAX_NAME)
        if resource["algorithm"] != "sha256" or path in digests:
            raise invalid(f"the resource {printable(path, 60)} is listed twice, or not by its sha256")
        digests[path] = hex_digest(resource["digest"], f"the resource {printable(path, 60)}")
    return digests
