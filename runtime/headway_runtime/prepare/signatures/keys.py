"""Keys: read from PEM files, named by a hash, and asked whether a signature is theirs.

A key's algorithm is a property of the key and never read from a signature: Ed25519, or ECDSA on P-256, P-384 and P-521
with SHA-256, -384 and -512, as the OpenSSF model-signing tools use them.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption

from headway_runtime.prepare.errors import PUBLIC_KEYS_FIELD, KeyFileError

MAX_FILE = 64 << 10
MAX_KEYS = 64
"""Key files in one directory. With ``dsse.MAX_SIGNATURES`` it bounds the work that one signature file can cause."""

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
_KINDS = "Ed25519, or ECDSA on P-256, P-384 or P-521"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """``keyid``: SHA-256 of the key's SubjectPublicKeyInfo in DER, as hex; ``name``: the file it came from."""

    keyid: str
    name: str
    key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made ``signature`` of ``message``."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, message)
            else:
                self.key.verify(signature, message, ec.ECDSA(_HASHES[self.key.curve.name]))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """An Ed25519 key that signs. Nothing of it is printed."""

    keyid: str
    key: ed25519.Ed25519PrivateKey = field(repr=False, compare=False)

    def public_pem(self) -> bytes:
        """The public half: what goes into the Secret."""
        return self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def private_pem(self, passphrase: bytes | None = None) -> bytes:
        """PKCS #8, encrypted when there is a passphrase."""
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def key_id(key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) -> str:
    """The name of a key: ``openssl pkey -pubin -outform DER | sha256sum`` prints the same."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def generate() -> PrivateKey:
    """A new Ed25519 key."""
    key = ed25519.Ed25519PrivateKey.generate()
    return PrivateKey(key_id(key.public_key()), key)


def parse_public_key(pem: bytes, name: str, *, field: str = PUBLIC_KEYS_FIELD) -> PublicKey:
    """The one key of a PEM file. Raises KeyFileError, which names the file and repeats nothing of it."""

    def refused(what: str) -> KeyFileError:
        return KeyFileError(f"{name} {what}", field=field)

    labels = [label.decode() for label in _BLOCK.findall(pem)]
    if any(label.endswith("PRIVATE KEY") for label in labels):
        raise refused(
            "holds a private key: replace it by its public key (openssl pkey -pubout), and no longer trust it, for "
            "whoever read it can sign"
        )
    if not labels:
        raise refused("holds no key in PEM form (-----BEGIN PUBLIC KEY-----)")
    if labels == ["CERTIFICATE"]:
        raise refused("is a certificate; its key is wanted: openssl x509 -pubkey -noout")
    if labels != ["PUBLIC KEY"]:
        raise refused(f"must hold exactly one PUBLIC KEY block; it holds {', '.join(labels[:4])}")
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise refused(f"holds a key that cannot be read; it must be {_KINDS}") from None
    if isinstance(key, ed25519.Ed25519PublicKey):
        return PublicKey(key_id(key), name, key)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        kind = type(key).__name__.lstrip("_").removesuffix("PublicKey")
        raise refused(f"is a key of the kind {kind}; it must be {_KINDS}")
    if key.curve.name not in _HASHES:
        raise refused(f"is a key on the curve {key.curve.name}; it must be {_KINDS}")
    return PublicKey(key_id(key), name, key)


def read_public_key(path: Path) -> PublicKey:
    """The key of one file. Raises KeyFileError."""
    return parse_public_key(_read(path, PUBLIC_KEYS_FIELD), path.name)


def read_directory(directory: Path, *, field: str) -> tuple[PublicKey, ...]:
    """The keys of a mounted Secret, one a file, by file name. Raises KeyFileError, with ``field`` of the spec.

    Names with a leading dot are Kubernetes' own. Every other file must be a key: one that is silently skipped would
    be missed only on the day when it is needed.
    """
    if not directory.is_dir():
        return ()
    paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    if len(paths) > MAX_KEYS:
        raise KeyFileError(f"there are {len(paths)} key files, at most {MAX_KEYS} are read", field=field)
    return tuple(parse_public_key(_read(path, field), path.name, field=field) for path in paths)


def read_private_key(path: Path, *, passphrase: bytes | None = None) -> PrivateKey:
    """The Ed25519 key of a PEM file. Raises KeyFileError, `PassphraseNeeded` when it is encrypted and there is none."""
    pem = _read(path, "")
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        if passphrase is None:
            raise PassphraseNeeded(f"{path.name} is encrypted: a passphrase is needed", field="") from None
        return read_private_key(path)  # a passphrase for a key that has none
    except (ValueError, UnsupportedAlgorithm):
        what = "a private key in PEM form" if passphrase is None else "a private key that the passphrase opens"
        raise KeyFileError(f"{path.name} does not hold {what}", field="") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise KeyFileError(f"{path.name} is no Ed25519 key; make one with headway keygen", field="")
    return PrivateKey(key_id(key.public_key()), key)


class PassphraseNeeded(KeyFileError):  # noqa: N818  # says what to do, rather than what went wrong
    """The key file is encrypted, and no passphrase was given."""


def _read(path: Path, field: str) -> bytes:
    try:
        if not path.is_file():
            raise KeyFileError(f"{path.name} is not a file that can be read", field=field)
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as e:
        raise KeyFileError(f"{path.name} cannot be read: {e.strerror}", field=field) from None
    if len(data) > MAX_FILE:
        raise KeyFileError(f"{path.name} is no key: it has more than {MAX_FILE} bytes", field=field)
    return data
