"""The decision: whose signature this is, and what it says of the file; and the way back, signing a file."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from headway_api.names import SIGNATURE_SUFFIX

from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import SignatureError, printable
from headway_runtime.prepare.signatures import dsse, openssf, statement
from headway_runtime.prepare.signatures.keys import PrivateKey
from headway_runtime.prepare.signatures.malformed import invalid, parse
from headway_runtime.prepare.signatures.statement import Statement
from headway_runtime.prepare.signatures.trust import Trust

MAX_BYTES = 1 << 20
"""Of a signature file. A bundle of a directory with a few thousand files is that large; ours has 700 bytes."""
_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Signed:
    """``keyid`` and ``key`` (its file's name) of a trusted key that signed; ``builder``: whether it is a builder's."""

    keyid: str
    key: str
    builder: bool
    statement: Statement


def verify(signature: bytes, *, digest: str, trust: Trust) -> Signed:
    """Who signed the file whose digest is ``sha256:<hex>``.

    Raises SignatureError ``SignatureInvalid``: malformed, of no trusted key, about another file, or a claim of native
    code that no builder's key signed. The order matters: nothing that is signed is read before its signer is known.
    """
    envelope, bundle = _open(signature)
    builders = envelope.signers(trust.builders)
    signers = builders or envelope.signers(trust.public)
    if not signers:
        raise invalid(f"no trusted key made this signature; it names {envelope.claims()}; {_trusted(trust)}")
    said = openssf.read(envelope.payload, digest) if bundle else statement.read(envelope.payload)
    if said.digest != digest:
        raise invalid(
            f"the signature is for another file: {printable(said.name, 80)} with digest {said.digest}, and the "
            f"artifact has {digest}"
        )
    if said.native and not builders:
        raise invalid(
            f"the signature says that the file holds compiled code, but its key ({signers[0].name}) is none of "
            "spec.artifact.trust.builderKeys"
        )
    return Signed(signers[0].keyid, signers[0].name, bool(builders), said)


def sign_statement(
    path: Path,
    *keys: PrivateKey,
    torch: str,
    native: bool = False,
    target: str | None = None,
    source: str | None = None,
) -> bytes:
    """The text of a signature of the file by each of the keys (several while keys are being replaced).

    ``torch`` is the version that exported it; with ``native``: ``target`` names the machine it was compiled for,
    ``source`` is the digest (``sha256:<hex>``) of the program it was compiled from. Raises SignatureError for values
    that :func:`verify` would refuse, OSError.
    """
    said = Statement(path.name, file_digest(path), torch, native, target, source)
    return strict_json.dump(dsse.sign(said.payload(), keys)) + b"\n"


def file_digest(path: Path) -> str:
    """``sha256:<hex>`` of a file."""
    sha = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
    return f"sha256:{sha.hexdigest()}"


def signature_file(path: Path) -> Path:
    """Where the signature of a file is: beside it."""
    return path.with_name(path.name + SIGNATURE_SUFFIX)


def read_signature(path: Path) -> bytes:
    """The text of a signature file. Raises SignatureError ``SignatureInvalid`` when it cannot be one, OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise too_large()
    return data


def find_signature(path: Path) -> bytes:
    """The same, for a person who may have forgotten to sign. Raises SignatureError ``SignatureMissing``, too."""
    try:
        return read_signature(path)
    except FileNotFoundError:
        raise SignatureError("SignatureMissing", f"there is no signature at {path}; headway sign makes one") from None


def too_large() -> SignatureError:
    """A signature file of more than ``MAX_BYTES``."""
    return invalid(f"a signature file has at most {MAX_BYTES} bytes")


def _open(signature: bytes) -> tuple[dsse.Envelope, bool]:
    """The envelope, and whether it came in a bundle."""
    if len(signature) > MAX_BYTES:
        raise too_large()
    document = parse(signature, "the signature file")
    if isinstance(document, dict) and "mediaType" in document:
        return openssf.open_bundle(document), True
    if isinstance(document, dict) and "payloadType" in document:
        return dsse.parse(document), False
    raise invalid("the signature file is neither a DSSE envelope (headway sign) nor an OpenSSF model-signing bundle")


def _trusted(trust: Trust) -> str:
    keys = [f"{os.path.basename(key.name)} ({key.keyid})" for key in (*trust.public, *trust.builders)]
    if not keys:
        return "no key is trusted: the Secrets of publicKeys and builderKeys are empty or missing"
    return f"trusted are {', '.join(keys[:4])}" + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
