"""What a signature of ours says: an in-toto Statement v1 (https://in-toto.io/Statement/v1) about one file.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "model.pt2", "digest": {"sha256": "<hex>"}}],
     "predicateType": "https://headway.dev/artifact/v1",
     "predicate": {"torch": "2.15.0", "native": false}}

A compiled program has ``"native": true``, and then ``target`` (the machine it was compiled for) and ``source`` (the
digest of the checked program it was compiled from). The name is for people: the digest alone says which file is meant.
"""

import re
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import printable
from headway_runtime.prepare.signatures.malformed import fields, invalid, items, parse, text

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://headway.dev/artifact/v1"
MAX_NAME = 1024
MAX_TARGET = 512

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_TORCH = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}[A-Za-z0-9.+_-]{0,48}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Statement:
    """``digest`` and ``source`` are ``sha256:<hex>``. What a signature does not speak of is None."""

    name: str
    digest: str
    torch: str | None = None
    native: bool = False
    target: str | None = None
    source: str | None = None

    def payload(self) -> bytes:
        """Canonical JSON: what is signed. Raises SignatureError for what :func:`read` would refuse."""
        predicate: dict[str, Any] = {"torch": self.torch, "native": self.native}
        if self.native:
            predicate |= {"target": self.target, "source": self.source}
        subject = {"name": self.name, "digest": {"sha256": self.digest.removeprefix("sha256:")}}
        document = {"_type": TYPE, "subject": [subject], "predicateType": PREDICATE_TYPE, "predicate": predicate}
        data = strict_json.dump(document)
        if read(data) != self:
            raise invalid("a statement without native code has no target and no source")
        return data


def read(payload: bytes) -> Statement:
    """The statement in a payload. Raises SignatureError."""
    predicate_type, name, digest, predicate = open_statement(parse(payload, "the signed statement"))
    if predicate_type != PREDICATE_TYPE:
        raise invalid(f"the statement is a {printable(predicate_type, 80)}, not a {PREDICATE_TYPE}")
    return _predicate(predicate, name, digest)


def open_statement(document: Any) -> tuple[str, str, str, Any]:
    """(predicate type, the subject's name, its digest as ``sha256:<hex>``, predicate) of an in-toto statement about one
    subject. Raises SignatureError.
    """
    fields(document, "the statement", required={"_type", "subject", "predicateType", "predicate"})
    if document["_type"] != TYPE:
        raise invalid(f"the statement is of type {printable(document['_type'], 80)}, not {TYPE}")
    subjects = items(document["subject"], "subject", 1)
    if not subjects:
        raise invalid("the statement is about nothing: subject is empty")
    fields(subjects[0], "the subject", required={"name", "digest"})
    fields(subjects[0]["digest"], "the subject's digest", required={"sha256"})
    name = text(subjects[0]["name"], "the subject's name", MAX_NAME)
    digest = f"sha256:{hex_digest(subjects[0]['digest']['sha256'], 'the subject')}"
    return text(document["predicateType"], "predicateType", 256), name, digest, document["predicate"]


def hex_digest(value: Any, what: str) -> str:
    """64 lower-case hexadecimal digits. Raises SignatureError."""
    if not isinstance(value, str) or not _HEX.match(value):
        raise invalid(f"the digest of {what} is not 64 lower-case hexadecimal digits")
    return value


def _predicate(predicate: Any, name: str, digest: str) -> Statement:
    fields(predicate, "the predicate", required={"torch", "native"}, optional={"target", "source"})
    torch, native = predicate["torch"], predicate["native"]
    if not isinstance(torch, str) or not _TORCH.match(torch):
        raise invalid("the predicate's torch is no version")
    if native is False:
        fields(predicate, "the predicate of a program without native code", required={"torch", "native"})
        return Statement(name, digest, torch)
    if native is not True:
        raise invalid("the predicate's native is neither true nor false")
    fields(predicate, "the predicate of a compiled program", required={"torch", "native", "target", "source"})
    target = text(predicate["target"], "the predicate's target", MAX_TARGET)
    if not isinstance(predicate["source"], str) or not _DIGEST.match(predicate["source"]):
        raise invalid("the predicate's source is not sha256:<64 hexadecimal digits>")
    return Statement(name, digest, torch, True, target, predicate["source"])
