"""Which program of an archive is meant, and which record speaks of it.

``torch.export.save`` writes one program and calls it ``model``; an archive packaged with several gives each its name.
"""

from collections.abc import Collection

from headway_runtime.prepare.beside import record as records
from headway_runtime.prepare.errors import PrepareError

DEFAULT = "model"
FIELD = "spec.artifact.program"


class UnknownProgramError(PrepareError):
    """The archive has no program of this name, or has several and none is named."""


def default(names: Collection[str]) -> str | None:
    """The only program, or the one called ``model``; None when neither is there."""
    return next(iter(names)) if len(names) == 1 else DEFAULT if DEFAULT in names else None


def choose(names: Collection[str], wanted: str | None) -> str:
    """The program that ``spec.artifact.program`` names. Raises UnknownProgramError naming those that exist."""
    found = default(names) if wanted is None else wanted
    if found is not None and found in names:
        return found
    there = f"the artifact holds {', '.join(sorted(names))}"
    message = f"{there}; name one of them" if wanted is None else f"{there}, and no program {wanted!r}"
    raise UnknownProgramError("UnknownProgram", message, field=FIELD)


def record(name: str, names: Collection[str]) -> str:
    """Headway's record of a program: ``extra/headway.json`` of the default one, ``extra/headway.<name>.json`` of
    another.
    """
    if name == default(names):
        return records.NAME
    return f"{records.NAME.removesuffix('.json')}.{name}.json"
