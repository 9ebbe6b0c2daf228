"""Keys, a file and its signature, for the tests of signatures; and one field of a JSON value changed."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway_runtime.prepare.signatures import dsse, keys
from headway_runtime.prepare.signatures.keys import PrivateKey, PublicKey
from headway_runtime.prepare.signatures.trust import Trust

DATA = b"not a model, but a signature does not mind" * 100


def public(key: PrivateKey, name: str = "team.pub") -> PublicKey:
    """The public half, as it is read from a file."""
    return keys.parse_public_key(key.public_pem(), name)


def trusting(*team: PrivateKey, builders: tuple[PrivateKey, ...] = ()) -> Trust:
    """A deployment that requires a signature by one of these keys."""
    return Trust(
        required=True,
        public=tuple(public(key, f"team-{number}.pub") for number, key in enumerate(team)),
        builders=tuple(public(key, f"builder-{number}.pub") for number, key in enumerate(builders)),
    )


def file(folder: Path, data: bytes = DATA, name: str = "model.pt2") -> Path:
    """A file to sign."""
    path = folder / name
    path.write_bytes(data)
    return path


def envelope(payload: object, *signers: PrivateKey, **changed: Any) -> bytes:
    """An envelope around any payload, honestly signed; then fields of it changed."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return json.dumps({**dsse.sign(data, signers), **changed}).encode()


def said(signature: bytes) -> Any:
    """The statement in an envelope."""
    return json.loads(base64.b64decode(json.loads(signature)["payload"]))


def changed(value: Any, path: str, new: Callable[[Any], Any] | Any) -> Any:
    """A copy of a JSON value with another value at ``a.0.b``; with ``...``, without it."""
    copy = json.loads(json.dumps(value))
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at = copy
    for step in steps:
        at = at[step]
    if new is ...:
        del at[last]
    else:
        at[last] = new(at[last]) if callable(new) else new
    return copy
