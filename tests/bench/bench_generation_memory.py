"""What the cache of keys and values wastes, and how long a decoder takes to be ready. By hand: `python
tests/bench/bench_generation_memory.py`.

Waste: after every step of a run of mixed lengths, slots of blocks that sequences hold and no token fills, of all slots
that they hold; over the whole run, with the prefix cache on and off, and with speculation. In this process.

Cold start: from the start of a pod's process to `Ready` in its report, with packed weights, a warm-up and the golden
gate, from the prepared artifact of the 270M model; the files are in the page cache. Wall-clock, and the pod's CPU time.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tests.bench.generation import inprocess, models, workload  # sets the number of threads: before torch

from headway_runtime.generation.engine import Engine  # isort: skip
from headway_runtime.generation.settings import Settings  # isort: skip
from headway_runtime.prepare.decoder import BLOCK_TOKENS  # isort: skip

from tests.bench import figures  # isort: skip
from tests.bench.peers.comparison import end_in_order, say  # isort: skip
from tests.bench.peers.figures import Figure, table  # isort: skip
from tests.unit.pod_process import pod  # isort: skip

LENGTHS = workload.Lengths(prompt=(16, 768), answer=(16, 256))
LONGEST = LENGTHS.prompt[1] + LENGTHS.answer[1]
WASTED, READY = 0.04, 20.0
WAYS: dict[str, dict[str, Any]] = {
    "no prefix cache": {"prefix_cache": False},
    "prefix cache": {},
    "prompt lookup": {"drafts": 4},
}


@dataclass(slots=True)
class Waste:
    """Slots that were held and slots that a token filled, summed over steps."""

    held: int = 0
    filled: int = 0
    shares: list[float] = field(default_factory=list)  # by step

    def look(self, engine: Engine) -> None:
        """Between two steps. Blocks that several sequences hold count once for each, as do their tokens."""
        running = engine._scheduler.running  # what it holds is nobody else's business
        held = BLOCK_TOKENS * sum(len(sequence.blocks) for sequence in running)
        filled = sum(sequence.computed for sequence in running)
        if held:
            self.held += held
            self.filled += filled
            self.shares.append(1 - filled / held)


def waste(options: argparse.Namespace) -> tuple[list[list[str]], float]:
    """Rows of the table, and the largest waste."""
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        prepared = models.prepared(options.model, Path(folder) / "model")
        bench = inprocess.opened(prepared, blocks=options.blocks)
        text = workload.corpus(lambda words: bench.tokenizer.encode(words, add_special_tokens=False).ids)
        questions = workload.drawn(text, options.requests, lengths=LENGTHS, seed=5)
        for name, more in WAYS.items():
            seen = Waste()
            settings = Settings(max_length=LONGEST + 1, max_sequences=options.slots, **more)
            ran = bench.run(questions, settings, each_step=seen.look)
            wasted = 1 - seen.filled / seen.held
            worst = max(worst, wasted)
            preempted = sum(record.preempted for record in ran.records)
            steps, busiest = len(ran.records), max(seen.shares)
            rows.append([name, f"{wasted:.2%}", f"{busiest:.1%}", str(steps), str(preempted)])
            say("  ".join(rows[-1]))
    return rows, worst


def cold(model: str, precision: str, rounds: int) -> tuple[Figure, Figure]:
    """Seconds, and CPU seconds, from the start of the process to Ready."""
    seconds, used = [], []
    with tempfile.TemporaryDirectory() as made:
        prepared = models.prepared(model, Path(made) / "model")
        for number in range(rounds + 1):
            folder = Path(made) / str(number)
            folder.mkdir()
            began = time.monotonic()
            with pod(folder, prepared, generation={"maxLength": 2048}, precision=precision) as server:
                server.wait_for_phase(seconds=600)
                if number:  # the first one brings the files into the page cache
                    seconds.append(time.monotonic() - began)
                    used.append(figures.cpu_seconds(server.process.pid))
                    say(f"  {model} {precision}: ready in {seconds[-1]:.1f} s, {used[-1]:.1f} of CPU")
    return Figure.of(seconds), Figure.of(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=models.NAMES, default="smollm2", help="whose cache is measured")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--slots", type=int, default=16, help="sequences at a time")
    parser.add_argument("--blocks", type=int, default=600, help="of the cache")
    parser.add_argument("--started", choices=models.NAMES, default="gemma3", help="what is started")
    parser.add_argument("--precision", default="Exported,Int8", help="to start with, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each")
    parser.add_argument("--only", choices=("waste", "start"))
    options = parser.parse_args()
    end_in_order()
    lines: list[str] = []
    print(figures.machine())
    if options.only != "start":
        rows, worst = waste(options)
        print(f"{options.model}, prompts of {LENGTHS.prompt}, answers of {LENGTHS.answer} tokens\n")
        print(table(["run", "waste", "of the worst step", "steps", "preempted"], rows))
        lines.append(figures.verdict("waste of the cache over a run", worst, WASTED, at_most=True))
    if options.only != "waste":
        for precision in options.precision.split(","):
            seconds, used = cold(options.started, precision, options.rounds)
            name = f"start of {options.started}, {precision}: {seconds.text(1)} s, {used.text(1)} s of CPU"
            lines.append(figures.verdict(name, seconds.median, READY, at_most=True))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
