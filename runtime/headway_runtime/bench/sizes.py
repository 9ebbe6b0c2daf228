"""How sizes of requests are distributed: `sequence=8..128~30`."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway_runtime.bench.errors import BenchError

SIGMA = 0.6  # of the logarithm: sentences of English text have about this spread
_FORM = re.compile(r"(?P<name>[^=\s]+)=(?P<least>\d+)(\.\.(?P<most>\d+)(~(?P<mean>\d+(\.\d+)?))?)?")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Sizes from `least` to `most`: uniform, or, with a `mean`, log-normal around it and cut at both ends."""

    least: int
    most: int
    mean: float | None = None

    def draw(self, random_: random.Random) -> int:
        """One size."""
        if self.mean is None:
            return random_.randint(self.least, self.most)
        centre = math.log(self.mean) - SIGMA**2 / 2
        for _ in range(100):
            size = round(random_.lognormvariate(centre, SIGMA))
            if self.least <= size <= self.most:
                return size
        return min(self.most, max(self.least, round(self.mean)))

    def __str__(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return f"{self.least}..{self.most}" + ("" if self.mean is None else f"~{self.mean:g}")


def parse_sizes(text: str) -> tuple[str, Distribution]:
    """A dimension and its distribution. Raises BenchError.

    `batch=1` is fixed, `batch=1..4` uniform, `sequence=8..128~30` log-normal with a mean of about 30.
    """
    match = _FORM.fullmatch(text)
    if not match:
        raise BenchError(
            f"--sizes {text!r}: write NAME=SIZE, NAME=LEAST..MOST (uniform) or NAME=LEAST..MOST~MEAN (log-normal), "
            "such as sequence=8..128~30"
        )
    least = int(match["least"])
    most = least if match["most"] is None else int(match["most"])
    mean = None if match["mean"] is None else float(match["mean"])
    if least > most or (mean is not None and not least <= mean <= most) or (mean is not None and least < 1):
        raise BenchError(f"--sizes {text!r}: it must ascend, and the mean lie between")
    return match["name"], Distribution(least, most, mean)


def check_sizes(
    dimensions: Mapping[str, Mapping[str, Any]], buckets: Mapping[str, Sequence[int]], given: Mapping[str, Distribution]
) -> None:
    """Whether a program takes the sizes that are given. `dimensions`: of its inspection, with `min`, `max` (None: no
    end). `buckets`: those of the manifest, whose largest is the most that is admitted. Raises BenchError.
    """
    for name, asked in given.items():
        if name not in dimensions:
            raise BenchError(f"--sizes {name}: the model's dimensions are {', '.join(dimensions) or 'none'}")
        least, most = dimensions[name]["min"], dimensions[name]["max"]
        if asked.least < least or (most is not None and asked.most > most):
            raise BenchError(f"--sizes {name}={asked}: the model takes {dimensions[name]['text']}")
        if buckets.get(name) and asked.most > buckets[name][-1]:
            raise BenchError(f"--sizes {name}={asked}: spec.batching.shapeBuckets.{name} admits {buckets[name][-1]}")


def default_sizes(largest: Mapping[str, int], batch: str | None) -> dict[str, Distribution]:
    """What is assumed without --sizes: one row, and other dimensions mostly short with a tail, as text is."""
    return {
        name: Distribution(1, 1) if name == batch or most == 1 else Distribution(1, most, max(1.0, most / 4))
        for name, most in largest.items()
    }
