"""Tokens per CPU-second beside vLLM's build for CPUs (float32) and llama.cpp (Q8_0). By hand: `python
tests/bench/bench_generation_peers.py`; `--help` has the options.

Every server is a tree of processes on loopback, serves the same weights, and gets the same prompts (as tokens) with the
same lengths of answers, so many at a time, greedy, end tokens ignored, no prefix kept. All are up at once and take
turns; each round asks new prompts, and begins with another server. What is counted is user and system time of the
whole tree, prompts included. Prints a table, the asked ratios, and JSON with `--json`.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tokenizers import Tokenizer

from tests.bench import figures
from tests.bench.generation import asking, models, workload
from tests.bench.generation.servers import KINDS, Plan, Server, StartError, started
from tests.bench.peers.comparison import end_in_order, say
from tests.bench.peers.figures import Figure, table
from tests.bench.peers.install import InstallError

ASKED = (("headway", "vllm", 1.0), ("headway-int8", "llamacpp", 1.3))


@dataclass(slots=True)
class Rounds:
    """Of one server: tokens of answers per CPU-second, by round; the texts of the last."""

    server: Server
    rates: list[float] = field(default_factory=list)
    texts: Mapping[int, str] = field(default_factory=dict)
    resident: int = 0


def compare(plan: Plan, names: Sequence[str], options: argparse.Namespace) -> dict[str, Rounds]:
    """Start the servers and let them take turns."""
    text = corpus(plan.model)
    lengths = workload.Lengths(tuple(options.prompt), tuple(options.answer))
    with ExitStack() as stack:
        up: dict[str, Rounds] = {}
        warm = workload.drawn(text, plan.slots, lengths=lengths, seed=-1)
        for name in names:
            say(f"starting {KINDS[name].title}")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            try:
                server = stack.enter_context(started(KINDS[name], plan, folder, warm[0]))
                asking.drive(server.port, warm, plan.slots, server.kind.more, stream=options.stream)
            except (StartError, InstallError, asking.WrongAnswerError, OSError) as error:
                say(f"  not measured: {error}")
                continue
            up[name] = Rounds(server)
        for number in range(options.rounds):
            questions = workload.drawn(text, options.requests, lengths=lengths, seed=number)
            turn = number % max(1, len(up))
            for name in [*up][turn:] + [*up][:turn]:
                _turn(up[name], questions, plan, stream=options.stream)
        for each in up.values():
            each.resident = each.server.resident()
        return up


def _turn(rounds: Rounds, questions: Sequence[workload.Question], plan: Plan, *, stream: bool) -> None:
    server = rounds.server
    before = server.cpu()
    answered = asking.drive(server.port, questions, plan.slots, server.kind.more, stream=stream)
    used = server.cpu() - before
    rounds.rates.append(answered.tokens / used)
    rounds.texts = answered.texts
    say(
        f"  {server.kind.name}: {answered.tokens} tokens after {answered.prompt_tokens} of prompts,"
        f" {used:.1f} s of CPU, {answered.tokens / used:.1f} per CPU-second"
    )


def corpus(model: str) -> tuple[int, ...]:
    """Tokens to draw prompts of."""
    tokenizer = Tokenizer.from_file(str(models.hugging_face(model) / "tokenizer.json"))
    return workload.corpus(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)


def shown(found: Mapping[str, Rounds]) -> str:
    """A table, best first."""
    ordered = sorted(found.items(), key=lambda item: -statistics.median(item[1].rates))
    base = found.get("headway")
    rows = []
    for name, each in ordered:
        same = "" if base is None else f"{_same(base.texts, each.texts)} of {len(each.texts)}"
        rows.append([KINDS[name].title, Figure.of(each.rates).text(1), same, f"{each.resident / 1e6:,.0f}"])
    return table(["server", "tokens per CPU-second", "texts as Headway's float32", "resident MB"], rows)


def _same(ours: Mapping[int, str], theirs: Mapping[int, str]) -> int:
    return sum(ours[number].strip() == theirs.get(number, "").strip() for number in ours)


def verdicts(found: Mapping[str, Rounds]) -> list[str]:
    """What was asked: medians of the ratios of the same round."""
    lines = []
    for ours, peer, bound in ASKED:
        rivals = [name for name in found if name.startswith(peer)]
        if ours not in found or not rivals:
            lines.append(f"---- {ours} against {peer}: not measured")
            continue
        best = max(rivals, key=lambda name: statistics.median(found[name].rates))
        ratios = [a / b for a, b in zip(found[ours].rates, found[best].rates, strict=True)]
        spread = Figure.of(ratios)
        name = f"{KINDS[ours].title} over {KINDS[best].title}, {spread.text(2)}"
        lines.append(figures.verdict(name, spread.median, bound, at_most=False))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=models.NAMES, default="smollm2")
    parser.add_argument("--servers", default=",".join(KINDS), help="names, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=32, help="of one round of one server")
    parser.add_argument("--slots", type=int, default=8, help="answers at a time")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of each server")
    parser.add_argument("--prompt", type=int, nargs=2, default=(16, 256), help="least and most tokens of a prompt")
    parser.add_argument("--answer", type=int, nargs=2, default=(16, 128), help="least and most tokens of an answer")
    parser.add_argument("--stream", action="store_true", help="ask for streams instead of whole answers")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    names = options.servers.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"--servers: no {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    end_in_order()
    machine = figures.machine()
    found = compare(Plan(options.model, options.slots, options.threads), names, options)
    if options.json:
        rates = {name: each.rates for name, each in found.items()}
        asked = {k: v for k, v in vars(options).items() if k != "json"}
        options.json.write_text(json.dumps({"machine": machine, "asked": asked, "rates": rates}, indent=1))
    how = "streamed" if options.stream else "whole answers"
    print(machine)
    print(f"{options.model}, {options.slots} at a time, {options.threads} threads, {how}, {options.rounds} rounds\n")
    print(shown(found), *verdicts(found), sep="\n")


if __name__ == "__main__":
    main()
