"""What an export is doing, said as it goes: each phase when it begins."""

from collections.abc import Callable

Say = Callable[[str], None]


def silently(_: str) -> None:
    """Nobody listens."""
