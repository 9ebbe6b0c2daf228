"""The init container's step between digest and inspection: fetch ``<uri>.sig``, decide, keep the proof.

The digest is that of the bytes as they were written to the pod's own volume, into a folder that no other process
uses, and the same file is inspected and repacked next: what was verified is what is served.

A restarted container finds the prepared program and the signature beside it, and decides again with the keys that are
mounted then: a key that was taken out of the Secret no longer vouches for anything.
"""

from pathlib import Path

from headway_api.names import SIGNATURE_SUFFIX

from headway_runtime.prepare import log
from headway_runtime.prepare.errors import FetchError, SignatureError
from headway_runtime.prepare.fetch import fetch
from headway_runtime.prepare.signatures.malformed import invalid
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import MAX_BYTES, Signed, read_signature, too_large, verify

KEPT = "signature.json"
"""Beside the prepared program: the signature file that was verified, byte for byte."""

_NO_ACCESS = (
    "the store refused to say whether there is one (S3 does that for an object that does not exist, unless the "
    "credentials may list the bucket: s3:ListBucket)"
)


def check_signature(uri: str, digest: str, work: Path, *, credentials: Path, trust: Trust) -> Signed | None:
    """Who signed the file from ``uri`` whose digest is ``sha256:<hex>``; its signature is then in ``work``.

    None: no signature is there and none is asked for. One that is there is never ignored when there are keys to hold
    it against. Raises SignatureError, and FetchError when the store cannot be asked.
    """
    if not trust.asks:
        return None
    where, kept = uri + SIGNATURE_SUFFIX, work / KEPT
    try:
        fetch(where, kept, credentials=credentials, max_bytes=MAX_BYTES, what="signature")
    except FetchError as e:
        if e.reason == "TooLarge":
            raise too_large() from None
        if e.reason not in ("NotFound", "Forbidden"):
            raise
        kept.unlink(missing_ok=True)
        why = _NO_ACCESS if e.reason == "Forbidden" else "there is no object"
        if trust.required:
            raise SignatureError(
                "SignatureMissing",
                f"spec.artifact.trust.require is Signature, and no signature was found at {where}: {why}. Sign the "
                "artifact (headway sign) and publish the .sig file beside it",
            ) from None
        log.event("signature.none", uri=where, cause=why)
        return None
    signed = verify(read_signature(kept), digest=digest, trust=trust)
    native = signed.statement.native
    log.event("signature.verified", keyid=signed.keyid, key=signed.key, builder=signed.builder, native=native)
    return signed


def check_again(output: Path, digest: str, *, trust: Trust) -> Signed | None:
    """The same decision for a program that was prepared before, without the network. Raises SignatureError, OSError
    when there was no signature and one is required.
    """
    if not trust.asks or (not trust.required and not (output / KEPT).exists()):
        return None
    return verify(read_signature(output / KEPT), digest=digest, trust=trust)


def check_plain(signed: Signed | None, torch: str) -> None:
    """What was signed must be what was inspected: a program without native code, of this torch. Raises
    SignatureError.
    """
    if signed is None:
        return
    if signed.statement.native:
        raise invalid("the signature says that the file holds compiled code, and it is a plain program")
    if signed.statement.torch not in (None, torch):
        raise invalid(f"the signature says torch {signed.statement.torch}, and torch {torch} exported the program")
