"""What the command line asks of an export, as one value, and the two ways to do it: from code, and from a ``.pt2``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from headway_runtime.export import annotations, proof, specs
from headway_runtime.export import source as sources
from headway_runtime.export.annotate import annotate
from headway_runtime.export.errors import ExportError
from headway_runtime.export.facts import Facts
from headway_runtime.export.model import Exported, export
from headway_runtime.export.saying import Say, silently
from headway_runtime.export.sizes import Size


@dataclass(frozen=True, slots=True)
class Asked:
    """``inputs`` and ``ranges`` as ``specs`` reads them. Golden samples: those of ``files``, and ``count`` made-up ones
    (None: as many as are usual) from ``seed``. ``program``: one of several in a ``.pt2``.
    """

    out: Path
    given: Facts
    program: str | None = None
    inputs: Sequence[str] = ()
    ranges: Sequence[str] = ()
    files: Sequence[Path] = ()
    count: int | None = None
    seed: int = 0

    def generator(self) -> torch.Generator:
        """Where made-up numbers come from."""
        return torch.Generator().manual_seed(self.seed)


def from_code(source: str, asked: Asked, say: Say = silently) -> Exported:
    """Export a module that the author's code makes. Raises ExportError."""
    say(f"making the module of {source}")
    module = sources.load(source)
    if not asked.inputs:
        raise ExportError(f"say what forward takes, one --input for each argument: {specs.hint(module)}")
    described = specs.parse_inputs(asked.inputs)
    limits = specs.parse_ranges(asked.ranges, [s.name for s in described])
    random = asked.generator()
    sizes = specs.dimensions(described)
    example = specs.make(described, specs.tracing_sizes(sizes), limits, random)
    shapes = {s.name: {axis: n for axis, n in enumerate(s.axes) if isinstance(n, Size)} for s in described}
    golden = [specs.read(file, described) for file in asked.files]
    usual = 0 if asked.files else 2
    golden += specs.samples(described, usual if asked.count is None else asked.count, limits, random)
    return export(module, example, asked.out, shapes, asked.given, golden, generated=not asked.files, say=say)


def from_file(source: Path, asked: Asked, say: Say = silently) -> Exported:
    """Annotate a ``.pt2`` that exists; nothing of it is executed by torch. Raises ExportError."""
    if not source.is_file():
        raise ExportError(f"there is no file {source}")
    say(f"inspecting, preparing and loading {source}, as a pod does")
    with proof.opened(source, asked.program) as pod:
        names = annotations.names_of(pod.program, specs.parse_inputs(asked.inputs))
        golden = None
        if asked.files or asked.count is not None:
            described = annotations.specs_of(pod.program)
            limits = specs.parse_ranges(asked.ranges, [s.name for s in described])
            golden = [specs.read(file, described) for file in asked.files]
            golden += specs.samples(described, asked.count or 0, limits, asked.generator())
    say("adding what was asked for, and loading and running the new file")
    return annotate(source, path=asked.out, dimensions=names, given=asked.given, samples=golden, program=asked.program)
