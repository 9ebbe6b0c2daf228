"""Inspect mutated archives by the thousand: each is accepted or refused by a rule, soon, and runs nothing.

    python -m tests.hostile.mutate [--count 100000] [--seed 0] [--run 500]

A finding is a mutant that ends the inspector's process, takes more than 2 s of CPU time or 1 GiB, raises anything but
a refusal, is refused as ``inspector.malformed`` (malformed in a way no rule speaks of), or leaves a marker. Of the
mutants that are accepted, ``--run`` are also loaded and run, each bounded too.
"""

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from headway_api.types import Precision
from headway_runtime.prepare import decoding, inspection, repack
from headway_runtime.prepare.errors import PrepareError, Refusal
from headway_runtime.prepare.rules import RULES
from headway_runtime.program import OutputError, ProgramError, ShapeError, load_program
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.program.decoder import StepInputs, open_decoder
from headway_runtime.program.load import read_document

from tests.decoders import tiny
from tests.hostile import archives as ar
from tests.hostile import zoo
from tests.hostile.forked import NOT_RUN, Forked
from tests.hostile.mutations import CODE, MUTATIONS

BASES = ("mlp", "cond", "decoder", "recurrent", "nested", "data_size", "keeps_state", "padded")
RECORD = b'{"version": 1, "task": "x", "labels": ["a", "b"]}'
SECONDS = 2.0
MEMORY = 1 << 30
RUN_SECONDS, RUN_MEMORY = 20.0, 8 << 30

OUTCOMES = (*RULES, "accepted", "raised")


@dataclass(slots=True)
class Report:
    """``findings`` in words; ``outcomes``: how many of each; ``accepted``: their numbers; ``ran``: how they ended."""

    findings: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    accepted: list[int] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)


class Mutants:
    """Mutant number n of a seed, from the honest programs in ``bases``; files are written to ``directory``."""

    def __init__(self, bases: Sequence[ar.Entries], seed: int, directory: Path) -> None:
        self._bases = bases
        self._seed = seed
        self._directory = directory
        self.marker = directory / "marker"

    def write(self, number: int) -> Path:
        """The mutant's file; it is overwritten by the next one."""
        rng = random.Random(f"{self._seed}/{number}")
        path = self._directory / "mutant.pt2"
        entries = rng.choice(self._bases)
        rng.choice(MUTATIONS)(entries, rng, path)
        data = path.read_bytes()
        if (code := CODE.format(marker="{marker}").encode()) in data:  # the path has the length of the placeholder
            path.write_bytes(data.replace(code, code.replace(b"{marker}", str(self.marker).encode())))
        return path

    def inspect(self, number: int) -> int:
        """Code of the outcome in OUTCOMES."""
        path = self.write(number)
        try:
            found = inspection.inspect(str(path))
            repack.repack(found, path, self._target())
        except Refusal as refused:
            return OUTCOMES.index(refused.rule)
        except Exception:
            return OUTCOMES.index("raised")
        return OUTCOMES.index("accepted")

    def run(self, number: int) -> int:
        """Load and run an accepted one: 0 when it ran, 1 when it said why not."""
        path, target = self.write(number), self._target()
        repack.repack(inspection.inspect(str(path)), path, target)
        try:
            if decoding.is_decoder(read_document(target)[1]):
                _step(target)
                return 0
            program = load_program(target, dimension_names={})
            sizes = {d.name: min(max(d.min, 2), d.max or 64) for d in program.dimensions.values()}
            shapes = program.input_shapes(sizes)
            inputs = [torch.ones(s).to(BY_PROTOCOL[i.datatype]) for s, i in zip(shapes, program.inputs, strict=True)]
            program.run(inputs)
        except (PrepareError, ProgramError, ShapeError, OutputError, RuntimeError, ValueError, TypeError,
                IndexError, ArithmeticError, NotImplementedError, MemoryError):  # fmt: skip
            return 1
        return 0

    def _target(self) -> Path:
        target = self._directory / "prepared"
        target.mkdir(exist_ok=True)
        return target


def _step(prepared: Path) -> None:
    """Open a decoder and run a step of two sequences."""
    decoder = open_decoder(prepared, blocks=8, cache_dtype=torch.float32, precision=Precision.EXPORTED)
    int32 = torch.int32
    decoder.step(
        StepInputs(
            torch.ones(5, dtype=torch.int64),
            torch.tensor([0, 1, 2, 0, 1]),
            torch.tensor([16, 17, 18, 32, 33]),
            torch.tensor([[1], [2]], dtype=int32),
            torch.tensor([3, 2], dtype=int32),
            torch.tensor([0, 3, 5], dtype=int32),
            torch.tensor([2, 4]),
        )
    )


def mutate(
    bases: Sequence[ar.Entries], directory: Path, *, count: int, seed: int, run: int, budget: float | None = None
) -> Report:
    """Inspect ``count`` mutants and run some of those accepted. ``budget``: CPU seconds for each of the two parts."""
    mutants, report = Mutants(bases, seed, directory), Report()
    inspector = Forked(count, mutants.inspect, seconds=SECONDS, memory=MEMORY + _mapped())
    report.findings += [f"mutant {death.number}: {death.fate}" for death in inspector.run(budget=budget)]
    for number, code in enumerate(inspector.codes()):
        if code != NOT_RUN:
            outcome = OUTCOMES[code]
            report.outcomes[outcome] += 1
            if outcome == "accepted":
                report.accepted.append(number)
            elif outcome in {"raised", "inspector.malformed", "inspector.limits"}:
                report.findings.append(f"mutant {number}: {outcome}")
    chosen = random.Random(seed).sample(report.accepted, min(run, len(report.accepted)))
    runner = Forked(len(chosen), lambda n: mutants.run(chosen[n]), seconds=RUN_SECONDS, memory=RUN_MEMORY + _mapped())
    report.findings += [f"mutant {chosen[d.number]}, run: {d.fate}" for d in runner.run(budget=budget)]
    report.ran.update({0: "ran", 1: "said why not", NOT_RUN: "not run"}[code] for code in runner.codes())
    if mutants.marker.exists():
        report.findings.append("a marker was left: something of a mutant was executed")
    return report


def _mapped() -> int:
    """Address space of this process: torch's libraries are mapped already."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * 4096


def export_bases(directory: Path) -> list[ar.Entries]:
    """The honest programs, each exported once."""
    found = []
    for name in BASES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zoo.PROGRAMS[name].export(directory / f"{name}.pt2")
        found.append(base(ar.read(directory / f"{name}.pt2")))
    return [*found, decoder_base(directory)]


def decoder_base(directory: Path) -> ar.Entries:
    """An honest decoder to make mutants of, with the record that it needs."""
    entries = ar.read(tiny(directory))
    return {**base(entries), "extra/headway.json": entries["extra/headway.json"]}


def base(entries: ar.Entries) -> ar.Entries:
    """An honest program to make mutants of: with a record of its own, and with little that says nothing."""
    return {**ar.altered(entries, _without_metadata), "extra/headway.json": RECORD}


def _without_metadata(document: Any) -> None:
    """Of all nodes but one: it is most of the text, and says nothing."""
    for node in document["graph_module"]["graph"]["nodes"][1:]:
        node["metadata"] = {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=int, default=500, help="how many of the accepted ones to load and run")
    parser.add_argument("--show", type=int, help="only inspect this mutant, and say what comes out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        bases = export_bases(Path(directory))
        if options.show is not None:
            path = Mutants(bases, options.seed, Path(directory)).write(options.show)
            print(inspection.inspect(str(path)))
            return 0
        report = mutate(bases, Path(directory), count=options.count, seed=options.seed, run=options.run)
    for outcome, number in report.outcomes.most_common():
        print(f"{number:7} {outcome}")
    print("\n".join(report.findings))
    print(f"accepted ones: {dict(report.ran)}; {len(report.findings)} findings")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
