"""Which keys a deployment trusts, and whether it insists on a signature."""

from dataclasses import dataclass
from pathlib import Path

from headway_api.types import TrustLevel

from headway_runtime.prepare.errors import BUILDER_KEYS_FIELD, PUBLIC_KEYS_FIELD
from headway_runtime.prepare.signatures.keys import PublicKey, read_directory


@dataclass(frozen=True, slots=True)
class Trust:
    """``public``: keys that may sign exported programs; ``builders``: keys that may sign compiled ones, too."""

    required: bool = False
    public: tuple[PublicKey, ...] = ()
    builders: tuple[PublicKey, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether a signature is looked for at all. Without keys and without a demand there is nothing to compare."""
        return self.required or bool(self.public or self.builders)


def read_trust(require: TrustLevel, public_keys: Path | None, builder_keys: Path | None) -> Trust:
    """The demand of the spec with the keys of the mounted Secrets; a directory that is not there holds none. Raises
    KeyFileError.
    """
    return Trust(
        required=require is TrustLevel.SIGNATURE,
        public=read_directory(public_keys, field=PUBLIC_KEYS_FIELD) if public_keys else (),
        builders=read_directory(builder_keys, field=BUILDER_KEYS_FIELD) if builder_keys else (),
    )
