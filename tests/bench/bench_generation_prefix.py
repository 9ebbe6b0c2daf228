"""What the prefix cache saves of the time to the first token. By hand: `python tests/bench/bench_generation_prefix.py`.

A real pod; a system prompt of 200 tokens, as the questions of one application share. One request at a time, streamed;
the first one of a system prompt and those after it, with `prefixCache` on and off in turn: a hot knob, the same pod.
Each time has a system prompt that was not there before. Wall-clock, and the pod's CPU time, from the request to its
first token.
"""

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tokenizers import Tokenizer

from tests.bench import figures
from tests.bench.generation import asking, models, workload
from tests.bench.peers import processes
from tests.bench.peers.comparison import say
from tests.bench.peers.figures import Figure, table
from tests.unit.pod_process import MODEL, PodProcess, pod

SHARED = 200  # tokens of the system prompt
OWN = (4, 12)  # tokens of a question
ASKED = 5.0


def first_token(server: PodProcess, prompt: Sequence[int]) -> tuple[float, float]:
    """Seconds, and CPU seconds of the pod, until the first token of a streamed answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=asking.PATIENCE)
    body = asking.body(workload.Question(tuple(prompt), 1), {"model": MODEL}, stream=True)
    before, began = processes.thread_seconds(server.process.pid), time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    line = next(line for line in response if line.startswith(b"data: {"))
    seconds, used = time.perf_counter() - began, processes.thread_seconds(server.process.pid) - before
    if response.status != 200:
        raise asking.WrongAnswerError(f"{response.status}: {line[:300]!r}")
    response.read()
    connection.close()
    return seconds, used


def one_round(
    server: PodProcess, text: Sequence[int], number: int, options: argparse.Namespace
) -> dict[str, list[float]]:
    """Medians of seconds and of CPU seconds: of the first request, and of those after it, cache on and off."""
    found: dict[str, list[float]] = {}
    for way in ("on", "off") if number % 2 else ("off", "on"):
        server.apply_knobs({"maxWait": "0ms", "prefixCache": way == "on"})
        rest = []
        questions = workload.drawn(
            text, options.requests, lengths=workload.Lengths(OWN, (1, 1)), seed=2 * number + (way == "on")
        )
        shared = workload.drawn(text, 1, lengths=workload.Lengths((SHARED, SHARED), (1, 1)), seed=-1 - number)[0].prompt
        system = (shared[0] + 1 + (way == "on"), *shared[1:])  # no block is one of another round
        for at, question in enumerate(questions):
            taken = first_token(server, (*system, *question.prompt))
            if at:
                rest.append(taken)
            else:
                found[f"first, {way}"] = list(taken)
        found[f"later, {way}"] = [statistics.median(each) for each in zip(*rest, strict=True)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=models.NAMES, default="smollm2")
    parser.add_argument("--precision", default="Exported", help="Exported, BFloat16 or Int8")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=8, help="of one system prompt; each round has two")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    machine = figures.machine()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = models.prepared(options.model, folder / "model")
        text = workload.corpus(_encode(model))
        with pod(folder, model, generation={"maxLength": 512}, precision=options.precision) as server:
            server.wait_for_phase(seconds=300)
            one_round(server, text, 10**6, options)  # a trial, so that nothing is new
            rounds = [one_round(server, text, number, options) for number in range(options.rounds)]
    for each in rounds:
        say(json.dumps({name: [round(x * 1e3, 1) for x in taken] for name, taken in each.items()}))
    names = ("first, on", "later, on", "first, off", "later, off")
    rows = [[name, *(Figure.of([each[name][at] * 1e3 for each in rounds]).text(1) for at in (0, 1))] for name in names]
    print(machine)
    print(f"{options.model}, {options.precision}: {SHARED} tokens shared, {OWN[0]} to {OWN[1]} of one's own\n")
    print(table(["request, prefix cache", "first token ms", "CPU ms"], rows))
    for at, what in ((1, "CPU time"), (0, "time")):
        ratio = Figure.of([each["later, off"][at] / each["later, on"][at] for each in rounds])
        name = f"{what} to the first token from the second request on, off over on, {ratio.text(1)}"
        print(figures.verdict(name, ratio.median, ASKED, at_most=False))


def _encode(model: Path) -> workload.Encode:
    from headway_runtime.prepare import repack

    tokenizer = Tokenizer.from_file(str(model / repack.TOKENIZER))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


if __name__ == "__main__":
    main()
