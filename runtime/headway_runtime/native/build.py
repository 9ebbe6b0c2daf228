"""The build step: from a ``.pt2`` to a native package that was tried.

The source is copied first, and the copy is what is inspected, compiled and packed: a file that changes meanwhile cannot
end up half in the code and half in the package.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headway_runtime.native import assumptions, compiler, lowering, package, sizes, tracing, trial
from headway_runtime.native.compiler import Target
from headway_runtime.native.errors import CompileError
from headway_runtime.native.trial import Tolerance, Trials
from headway_runtime.prepare import decoding, repack
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.prepare.signatures.keys import PrivateKey
from headway_runtime.prepare.signatures.verify import file_digest, sign_statement, signature_file
from headway_runtime.prepare.sizes import dimensions
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program import Program, load_program
from headway_runtime.program.load import read_document

Tell = Callable[[str], None]

DEFAULT_TOLERANCE = Tolerance()


@dataclass(frozen=True, slots=True)
class Compiled:
    """One program: seconds it took, bytes of its library, whether all of its code runs in several threads, the
    conditions on its sizes that were added to its own (in its author's names), and how it was tried.
    """

    name: str
    parallel: bool
    seconds: float
    library_bytes: int
    guards: tuple[str, ...]
    trials: Trials


@dataclass(frozen=True, slots=True)
class Built:
    """A package as written: what its manifest says, its size in bytes, and its programs."""

    manifest: package.Manifest
    bytes: int
    programs: tuple[Compiled, ...]


def build(
    source: Path,
    output: Path,
    *,
    target: str,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    keys: Sequence[PrivateKey] = (),
    tell: Tell = lambda _: None,
) -> Built:
    """Compile all programs of ``source``, write the package and, with ``keys``, its signature beside it; ``tell`` is
    given each step as it begins.

    Raises CompileError, and Refusal for a source that a pod would refuse. Nothing is written unless all went well.
    """
    cxx = compiler.find()
    chosen = compiler.target(target)
    features = compiler.needs(cxx, chosen)
    with tempfile.TemporaryDirectory(prefix="headway-compile-") as folder:
        work = Path(folder)
        copy = Path(shutil.copyfile(source, work / package.SOURCE))
        prepared = work / "prepared"
        prepared.mkdir()
        tell("inspecting")
        inspection = inspect_isolated(copy)
        if text := [name for name, each in inspection.programs.items() if decoding.is_decoder(each.document)]:
            raise CompileError(f"program {text[0]} generates text; a pod's own kernels run it, and nothing is compiled")
        repack.repack(inspection, copy, prepared)
        compiled: list[Compiled] = []
        manifest = package.Manifest(_torch_version(), chosen.name, features, file_digest(copy), {})
        for name in sorted(inspection.programs):
            step = _Step(prepared, name, work / "build" / name, tell)
            step.folder.mkdir(parents=True)
            done, guards = step.run(chosen, cxx, manifest, tolerance)
            compiled.append(done)
            manifest = replace(manifest, programs={**manifest.programs, name: guards})
        libraries = {name: package.library_file(prepared, name) for name in manifest.programs}
        tell("writing")
        finished = work / "finished" / output.name  # signed where nobody else can change it
        finished.parent.mkdir()
        package.write(finished, manifest, source=copy, libraries=libraries)
        size = finished.stat().st_size
        said = {"torch": manifest.torch, "target": manifest.target, "source": manifest.source}
        signature = sign_statement(finished, *keys, native=True, **said) if keys else None
        unfinished = output.with_name(f".{output.name}.unfinished")
        shutil.copyfile(finished, unfinished)
        unfinished.replace(output)
        if signature is not None:
            signature_file(output).write_bytes(signature)
    return Built(manifest, size, tuple(compiled))


@dataclass(frozen=True, slots=True)
class _Step:
    """One program of the prepared directory; the build's own files go to ``folder``."""

    prepared: Path
    name: str
    folder: Path
    tell: Tell

    def run(
        self, chosen: Target, cxx: str, manifest: package.Manifest, tolerance: Tolerance
    ) -> tuple[Compiled, tuple[Any, ...]]:
        """What came of it, and the conditions that were added, as JSON. Raises CompileError."""
        began = time.monotonic()
        _, document = read_document(self.prepared, self.name)
        machine = load_program(self.prepared, dimension_names={}, program=self.name)
        named, _ = dimensions.of_document(document)
        space = sizes.space(machine, named)
        example = space.example()
        if example is None:
            raise CompileError(f"program {self.name}: no sizes up to {sizes.MAX_AXIS} satisfy its ranges and guards")
        self.tell(f"tracing {self.name}")
        traced = tracing.trace(self.prepared, document, named, example)
        self.tell(f"compiling {self.name} for {chosen.name}")
        lowered = lowering.lower(traced, chosen, cxx=cxx, folder=self.folder)
        found = assumptions.sort(
            lowered.traced,
            lowered.lowered,
            symbols=traced.symbols,
            narrowed=traced.narrowed,
            own=[ex.from_json(guard) for guard in document["guards"]],
            space=space,
        )
        guards = tuple(ex.to_json(condition) for condition in found.kept)
        self._place(lowered.library, replace(manifest, programs={self.name: guards}))
        self.tell(f"comparing {self.name} with the program")
        trials = self._compare(machine, space, found, tolerance)
        seconds = time.monotonic() - began
        size = package.library_file(self.prepared, self.name).stat().st_size
        conditions = tuple(named.render(condition) for condition in found.kept)
        return Compiled(self.name, lowered.parallel, seconds, size, conditions, trials), guards

    def _place(self, library: Path, manifest: package.Manifest) -> None:
        """Into the prepared directory, as in a pod."""
        target = package.library_file(self.prepared, self.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(library, target)
        package.manifest_file(self.prepared).write_bytes(manifest.to_json())

    def _compare(
        self, machine: Program, space: sizes.Space, found: assumptions.Assumptions, tolerance: Tolerance
    ) -> Trials:
        native = load_program(self.prepared, dimension_names={}, program=self.name)
        choices = [*space.ends(), *(broken for _, broken in found.broken)]
        allowed = [choice for i, choice in enumerate(choices) if choice not in choices[:i] and not native.check(choice)]
        if not allowed:
            raise CompileError(f"program {self.name}: compiling left no sizes at which it may run")
        file = repack.samples_file(self.prepared, self.name)
        samples = strict_json.parse(file.read_bytes()) if file.exists() else []
        return trial.compare(machine, native, sizes=allowed, samples=samples, tolerance=tolerance)


def _torch_version() -> str:
    return str(torch.__version__).partition("+")[0]
