"""From rounds to figures: pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity over several rounds."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of at least one round."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int = 0) -> str:
        """`median (least-greatest)`."""
        return f"{self.median:,.{digits}f} ({self.least:,.{digits}f}-{self.greatest:,.{digits}f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns padded so that it also reads as plain text."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]])
