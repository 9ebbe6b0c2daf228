"""What the prepare step recorded beside the program it wrote."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_runtime.errors import FatalError

MARKER = "prepared.json"


@dataclass(frozen=True, slots=True)
class Origin:
    """The artifact's digest (`sha256:<hex>`), the torch version that exported it, the id of the key that signed it, and
    the target of its native code.
    """

    digest: str | None = None
    torch: str | None = None
    signer: str | None = None
    native: str | None = None


def read_origin(directory: Path) -> Origin:
    """Read the marker. Raises FatalError `NotPrepared` when the directory holds no complete program."""
    try:
        facts: dict[str, Any] = json.loads((directory / MARKER).read_text())
    except (OSError, ValueError) as error:
        message = f"{directory} holds no prepared program ({error}); the prepare step writes it"
        raise FatalError("NotPrepared", message) from None
    return Origin(**{name: facts.get(name) for name in ("digest", "torch", "signer", "native")})
