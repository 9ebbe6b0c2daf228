"""Continuous against static batching of the same program. By hand: `python tests/bench/bench_generation_static.py`.

Both are the same loaded decoder, engine and kernels; they differ in who may join. Static: what waits is a batch of at
most so many, and nobody joins before all of it is done, its rows running as long as the longest answer does, as in any
batcher of whole requests (`--dropped`: rows that are done leave the batch, which no such batcher does, and nobody
joins all the same). Prompts and answers are of mixed lengths. First all requests wait from the beginning: the
throughput at saturation. Then they come by a Poisson process at 75 % of what static batching can bear: the time to the
first token. Time is CPU time of the process on one thread, and jumps where nothing is to do; rounds alternate.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tests.bench.generation import inprocess, models, workload  # sets the number of threads: before torch

from headway_api.types import Precision  # isort: skip
from headway_runtime.bench.statistics import percentile  # isort: skip
from headway_runtime.generation.settings import Settings  # isort: skip

from tests.bench import figures  # isort: skip
from tests.bench.peers.comparison import say  # isort: skip
from tests.bench.peers.figures import Figure, table  # isort: skip

LOAD = 0.75  # of what static batching can bear
LENGTHS = workload.Lengths(prompt=(16, 256), answer=(8, 200))
LONGEST = LENGTHS.prompt[1] + LENGTHS.answer[1]


def one_round(bench: inprocess.Bench, number: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Figures of either way of batching."""
    text = workload.corpus(lambda words: bench.tokenizer.encode(words, add_special_tokens=False).ids)
    # Prompts of one text repeat each other: nobody may profit.
    settings = Settings(max_length=LONGEST + 1, max_sequences=options.slots, prefix_cache=False)
    ways = {"continuous": {}, "static": {"static": True, "padded": not options.dropped}}
    found: dict[str, dict[str, float]] = {name: {} for name in ways}
    order = sorted(ways, reverse=bool(number % 2))
    waiting = workload.drawn(text, options.requests, lengths=LENGTHS, seed=number)
    for name in order:
        ran = bench.run(waiting, settings, **ways[name])
        found[name] |= {"rate": ran.rate, "requests": len(waiting) / ran.seconds}
        found[name]["sequences"] = sum(record.sequences for record in ran.records) / len(ran.records)
    rate = LOAD * found["static"]["requests"]
    coming = workload.drawn(text, options.requests, lengths=LENGTHS, seed=1000 + number, rate=rate)
    for name in order:
        waited = sorted(bench.run(coming, settings, **ways[name]).waited())
        found[name] |= {f"first_p{at}": percentile(waited, at) for at in (50, 95)}
    for name in order:
        each = found[name]
        say(
            f"  {name}: {each['rate']:.1f} tokens/s, {each['sequences']:.1f} sequences a step;"
            f" first token p50 {each['first_p50'] * 1e3:.0f} ms, p95 {each['first_p95'] * 1e3:.0f} ms"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=models.NAMES, default="smollm2")
    parser.add_argument("--precision", type=Precision, default=Precision.EXPORTED, choices=list(Precision))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64, help="of one run; each round has four")
    parser.add_argument("--slots", type=int, default=16, help="sequences at a time")
    parser.add_argument("--dropped", action="store_true", help="rows that are done leave the static batch")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    machine = figures.machine()
    with tempfile.TemporaryDirectory() as folder:
        prepared = models.prepared(options.model, Path(folder) / "model")
        blocks = 1 + options.slots * (LONGEST // 16 + 2)
        bench = inprocess.opened(prepared, blocks=blocks, precision=options.precision)
        rounds = [one_round(bench, number, options) for number in range(options.rounds)]
    if options.json:
        asked = {k: str(v) for k, v in vars(options).items()}
        options.json.write_text(json.dumps({"machine": machine, "asked": asked, "rounds": rounds}, indent=1))
    columns = ("rate", "requests", "sequences", "first_p50", "first_p95")
    rows = [
        [name, *(Figure.of([each[name][column] for each in rounds]).text(2) for column in columns)]
        for name in ("continuous", "static")
    ]
    print(machine)
    print(f"{options.model}, {options.precision}, {options.slots} at a time, {options.requests} requests a run\n")
    header = ["batching", "tokens/s", "requests/s", "sequences a step", "first token p50 s", "p95 s"]
    print(table(header, rows))
    sooner = Figure.of([each["static"]["first_p50"] / each["continuous"]["first_p50"] for each in rounds])
    faster = Figure.of([each["continuous"]["rate"] / each["static"]["rate"] for each in rounds])
    load = f"at {LOAD:.0%} of static's load, {sooner.text(1)}"
    print(figures.verdict(f"time to first token p50, static over continuous {load}", sooner.median, 10, at_most=False))
    print(figures.verdict(f"tokens/s, continuous over static, {faster.text(2)}", faster.median, 1.3, at_most=False))


if __name__ == "__main__":
    main()
