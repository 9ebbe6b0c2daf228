"""What a pod would say of a file: it is inspected, prepared, loaded and run here as there."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway_runtime import parity
from headway_runtime.agreement import Tolerance
from headway_runtime.batching.layout import Layout
from headway_runtime.export.errors import ExportError
from headway_runtime.prepare import programs, repack
from headway_runtime.prepare.errors import PrepareError, Refusal
from headway_runtime.prepare.inspection import Inspection
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.program import Program, ProgramError, load_program


@dataclass(frozen=True, slots=True)
class Opened:
    """A file as a pod has it."""

    inspection: Inspection
    name: str
    program: Program
    layout: Layout
    directory: Path


@contextmanager
def opened(file: Path, program: str | None = None) -> Iterator[Opened]:
    """Inspect, prepare and load a file in a temporary folder. Raises ExportError in the words of a pod's refusal."""
    with prepared(file) as (inspection, folder):
        with refused_by_a_pod():
            name = programs.choose(inspection.programs, program)
            loaded = load_program(folder, dimension_names={}, program=name)
        yield Opened(inspection, name, loaded, Layout.of(loaded), folder)


@contextmanager
def prepared(file: Path) -> Iterator[tuple[Inspection, Path]]:
    """Inspect and prepare a file: what it holds, and the folder that a pod would load it from. Raises ExportError."""
    with tempfile.TemporaryDirectory(prefix="headway-") as temporary:
        folder = Path(temporary)
        with refused_by_a_pod():
            real = file.resolve()  # here, unlike in a pod, a link is the user's own
            inspection = inspect_isolated(real)
            repack.repack(inspection, real, folder)
        yield inspection, folder


@contextmanager
def refused_by_a_pod() -> Iterator[None]:
    """What is refused within it becomes an ExportError in the words of a pod."""
    try:
        yield
    except PrepareError as refusal:
        if isinstance(refusal, Refusal) and refusal.rule.startswith("record."):  # written from options
            raise ExportError(f"what was asked for does not fit the program: {refusal.detail}") from None
        raise ExportError(f"a pod would refuse this program ({refusal.reason}): {refusal}") from None
    except ProgramError as error:
        raise ExportError(f"a pod would refuse this program ({error.reason}): {error.message}") from None


def check(pod: Opened, samples: Sequence[parity.Sample], tolerance: Tolerance) -> float:
    """Run samples and compare; the largest absolute difference. Raises ExportError naming output and sample."""
    found = parity.run_samples(pod.program, pod.layout, samples, tolerance)
    if found.skipped:
        raise ExportError(found.skipped[0])
    if found.disagreements:
        text = "the exported program does not answer as the module does, so nothing was written"
        raise ExportError("\n".join([f"{text}:", *(f"  {line}" for line in found.disagreements[:5])]))
    return found.largest
