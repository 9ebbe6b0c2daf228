"""Whether greedy tokens are those of transformers, however requests are run. By hand: `python
tests/bench/bench_generation_exact.py`.

Sixty prompts (`tests/decoders/prompts.py`), of which transformers has made whole continuations one after the other
(`tests/decoders/reference.py`), run in each of the ways below on the real decoders in float32. An answer is equal when
every token is. Where two tokens are about as likely, sums in another order decide: an answer that leaves transformers'
at a token that led by less than `TIE` counts as a tie, and what follows is not compared.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tests.bench.generation import inprocess, models  # sets the number of threads: before torch

from headway_api.types import Precision  # isort: skip
from headway_runtime.generation.settings import Settings  # isort: skip
from headway_runtime.program.decoder import Decoder  # isort: skip

from tests.bench import figures  # isort: skip
from tests.bench.generation.workload import Question  # isort: skip
from tests.bench.peers.comparison import say  # isort: skip
from tests.bench.peers.figures import table  # isort: skip
from tests.decoders import reference  # isort: skip

TIE = 1e-3
"""Of logits, where the sums of either side differ by 1e-4 and less."""
PLENTY = 2048  # blocks
WHOLE = 4096  # tokens of a step: every prompt in one


@dataclass(frozen=True, slots=True)
class Way:
    """How requests are run. `scarce`: a cache that holds little more than the longest of them. `draft`: the same
    decoder in Int8 proposes. `does`: what must have happened, or the way is not what it says.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    scarce: bool = False
    draft: bool = False
    does: tuple[str, ...] = ()


WAYS = (
    Way("alone, whole prompts, no prefix cache", {"max_sequences": 1, "step_tokens": WHOLE, "prefix_cache": False}),
    Way("batched, whole prompts, no prefix cache", {"step_tokens": WHOLE, "prefix_cache": False}),
    Way("batched, prefix cache", {"step_tokens": WHOLE}, does=("cached",)),
    Way("batched, chunked prefill", {"step_tokens": 48, "prefix_cache": False}),
    Way("batched, preemption", {"prefix_cache": False}, scarce=True, does=("preempted",)),
    Way("batched, prompt lookup", {"prefix_cache": False, "drafts": 4}, does=("accepted",)),
    Way("batched, a draft program", {"prefix_cache": False, "drafts": 3}, draft=True, does=("accepted",)),
    Way(
        "all of it", {"step_tokens": 48, "drafts": 3}, scarce=True, draft=True, does=("preempted", "cached", "accepted")
    ),
)


@dataclass(slots=True)
class Found:
    """Of one way: answers, and tokens of them that were compared and are equal."""

    equal: int = 0
    ties: int = 0
    different: int = 0
    tokens: int = 0
    worst: float = 0.0  # the lead of a token that another was taken for

    def compare(self, made: Sequence[int], right: reference.Answer) -> None:
        at = next((i for i, (a, b) in enumerate(zip(made, right.tokens, strict=False)) if a != b), None)
        if at is None and len(made) == len(right.tokens):
            self.equal += 1
            self.tokens += len(made)
            return
        at = min(len(made), len(right.tokens)) if at is None else at
        self.tokens += at
        lead = right.margins[at] if at < len(right.margins) else float("inf")
        self.worst = max(self.worst, lead)
        if lead < TIE:
            self.ties += 1
        else:
            self.different += 1


def try_way(way: Way, prepared: Path, answers: Sequence[reference.Answer]) -> tuple[Found, dict[str, int]]:
    """Run all prompts this way; returns what it did besides, too."""
    longest = max(len(answer.prompt) for answer in answers) + reference.TOKENS
    blocks = longest // 16 + 12 if way.scarce else PLENTY
    bench = inprocess.opened(prepared, blocks=blocks)
    draft: Decoder | None = None
    if way.draft:
        draft = inprocess.opened(prepared, blocks=blocks, precision=Precision.INT8).decoder
    questions = [Question(answer.prompt, reference.TOKENS) for answer in answers]
    ends = frozenset(bench.decoder.facts.end)
    ran = bench.run(questions, Settings(max_length=longest, **way.settings), draft=draft, ends=ends)
    found = Found()
    for made, right in zip(ran.answers, answers, strict=True):
        found.compare(made.tokens, right)
    counts = {
        name: sum(getattr(record, name) for record in ran.records)
        for name in ("preempted", "cached", "drafted", "accepted")
    }
    return found, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(models.NAMES), help="names, separated by commas")
    parser.add_argument("--prompts", type=int, default=60, help="the first so many, from all kinds of them")
    parser.add_argument("--ways", type=int, nargs="*", default=range(len(WAYS)), help="numbers, from 0")
    options = parser.parse_args()
    rows, wrong, idle, least = [], 0, 0, options.prompts
    for name in options.models.split(","):
        known = reference.reference(name)
        answers = known[:: max(1, len(known) // options.prompts)][: options.prompts]
        least = min(least, len(answers))
        with tempfile.TemporaryDirectory() as folder:
            prepared = models.prepared(name, Path(folder) / "model")
            for way in (WAYS[number] for number in options.ways):
                found, besides = try_way(way, prepared, answers)
                wrong += found.different
                idle += sum(not besides[each] for each in way.does)
                equal = f"{found.equal} of {len(answers)}"
                worst = f"{found.worst:.1e}" if found.worst else ""
                rows.append(
                    [
                        name,
                        way.name,
                        equal,
                        str(found.ties),
                        str(found.different),
                        f"{found.tokens:,}",
                        worst,
                        ", ".join(f"{each} {count:,}" for each, count in besides.items() if count),
                    ]
                )
                say("  ".join(rows[-1]))
    print(figures.machine())
    header = ["model", "way", "equal answers", "ties", "different", "equal tokens", "widest lead lost", "besides"]
    print(table(header, rows))
    print(figures.verdict("answers that differ from transformers', ties told apart", wrong, 0, at_most=True))
    print(figures.verdict("ways that did not do what their names say", idle, 0, at_most=True))
    print(figures.verdict("prompts of each model", least, 50, at_most=False))


if __name__ == "__main__":
    main()
