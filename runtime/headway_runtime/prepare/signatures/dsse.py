"""DSSE, the Dead Simple Signing Envelope (https://github.com/secure-systems-lab/dsse, v1): bytes, their type, and
signatures of both.

    {"payload": "<base64>", "payloadType": "application/vnd.in-toto+json",
     "signatures": [{"keyid": "…", "sig": "<base64>"}, …]}

What is signed is the payload's bytes, never a re-serialised document, so nothing of the payload is parsed before a
trusted key was found to have signed it. A ``keyid`` is not signed: it is shown in messages and decides nothing; every
trusted key is tried on every signature.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.errors import printable
from headway_runtime.prepare.signatures.keys import PrivateKey, PublicKey
from headway_runtime.prepare.signatures.malformed import fields, invalid, items, text

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_SIGNATURES = 16
MAX_KEYID = 256


@dataclass(frozen=True, slots=True)
class Envelope:
    """The payload as signed, and (claimed key id, signature) pairs."""

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    def signers(self, keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
        """Those of ``keys`` that signed the payload, in their order."""
        message = pae(PAYLOAD_TYPE, self.payload)
        return tuple(key for key in keys if any(key.verifies(sig, message) for _, sig in self.signatures))

    def claims(self) -> str:
        """The ids of the keys that the envelope says it was signed with, for a message."""
        return ", ".join(printable(keyid, 64) or "an unnamed key" for keyid, _ in self.signatures)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: what is signed. Lengths are those of the UTF-8 bytes, in decimal."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def parse(value: Any) -> Envelope:
    """The envelope in a JSON value. Raises SignatureError."""
    fields(value, "the envelope", required={"payload", "payloadType", "signatures"})
    if value["payloadType"] != PAYLOAD_TYPE:
        raise invalid(f"the payload is of type {printable(value['payloadType'], 80)}, not {PAYLOAD_TYPE}")
    found = items(value["signatures"], "signatures", MAX_SIGNATURES)
    if not found:
        raise invalid("the envelope holds no signature")
    return Envelope(decode(value["payload"], "payload"), tuple(_signature(item) for item in found))


def sign(payload: bytes, keys: Iterable[PrivateKey]) -> dict[str, Any]:
    """The envelope of ``payload``, with one signature a key."""
    message = pae(PAYLOAD_TYPE, payload)
    signatures = [{"keyid": key.keyid, "sig": _encode(key.key.sign(message))} for key in keys]
    return {"payload": _encode(payload), "payloadType": PAYLOAD_TYPE, "signatures": signatures}


def decode(value: Any, what: str) -> bytes:
    """Bytes of base64 text in the one form that encoding them gives: no two texts mean the same. Raises
    SignatureError.
    """
    encoded = text(value, what, 2 << 20)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{what} is not base64") from None
    if _encode(data) != encoded:
        raise invalid(f"{what} is not canonical base64")
    return data


def _signature(value: Any) -> tuple[str, bytes]:
    fields(value, "a signature", required={"sig"}, optional={"keyid"})
    keyid = value.get("keyid", "")
    return "" if keyid == "" else text(keyid, "keyid", MAX_KEYID), decode(value["sig"], "sig")


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
