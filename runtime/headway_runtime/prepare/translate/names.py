"""Names that come from a file: what they may look like. None of them is ever pasted into source or resolved."""

import re

from headway_runtime.prepare.errors import Refusal

MAX_NAME = 256

_VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z", re.ASCII)


def check_value(name: str) -> str:
    """Name of a graph value or a parameter of ``forward``: an identifier. Raises Refusal ``name.value``."""
    if not _VALUE.match(name):
        raise Refusal("name.value", name)
    return name


def check_printable(name: str) -> str:
    """Name shown to people (a weight's path, a dict key, a dimension): bounded and printable. Raises
    ``name.printable``.
    """
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise Refusal("name.printable", name)
    return name
