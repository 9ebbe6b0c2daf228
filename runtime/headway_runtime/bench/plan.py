"""What is asked of a measurement."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway_runtime.bench.sizes import Distribution

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. Empty `connections`, `rates`: what is usual for the model."""

    seconds: float = 5.0  # of each measurement
    connections: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    latency_target: float | None = None  # seconds
    sizes: Mapping[str, Distribution] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    samples: Path | None = None
    binary: bool = False
    verify: bool = True
    seed: int = 0
