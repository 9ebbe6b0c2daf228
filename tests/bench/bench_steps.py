"""Texts to embeddings: tokenized in the pod, or by the client. By hand:

    python tests/bench/bench_steps.py [--figure pod|thread] [--rounds 5] [--requests 200]

*pod*: one connection, one text after the other, MiniLM; client and pod have a processor each where there are two. The
latency is what the client sees, tokenizing included; the processor time is of client and pod together, for a request.
*thread*: processor time of one text tokenized on the event loop, and handed to a thread of the crew and back, in this
process: why short texts are not handed over. Rounds alternate; medians are told.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

import numpy as np
import orjson
from headway_runtime.serving.steps.crew import Crew, Job
from headway_runtime.serving.steps.tokens import Tokenizer, Tokens
from headway_runtime.serving.values import Call

from tests.bench.figures import cpu_seconds, machine, over_rounds, spread, told
from tests.bench.minilm import LENGTHS, minilm_pod, split_processors
from tests.e2e.models import package_model
from tests.unit.pod_process import MODEL, PodProcess

Body = tuple[bytes, dict[str, str]]
JSON = {"content-type": "application/json"}
WORDS = "the of and to in is was for that it with as his on be at by this had not are but from or have"


def texts(count: int, seed: int = 5) -> list[str]:
    """Of common words, as long as sentences are: about 30 tokens."""
    random_ = random.Random(seed)
    words = [
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "was",
        "for",
        "that",
        "it",
        "with",
        "as",
        "his",
        "on",
        "be",
        "at",
        "by",
        "this",
        "had",
        "not",
        "are",
        "but",
        "from",
        "or",
        "have",
    ]
    return [" ".join(random_.choices(words, k=max(1, LENGTHS.draw(random_) - 2))) for _ in range(count)]


def in_the_pod(text: str, _: Tokenizer) -> Body:
    return orjson.dumps({"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]}), JSON


def by_the_client(text: str, tokenizer: Tokenizer) -> Body:
    (tokens,) = tokenizer.encode([text])
    shape = [1, len(tokens.ids)]
    inputs = [
        {"name": "ids", "datatype": "INT64", "shape": shape, "data": tokens.ids},
        {"name": "mask", "datatype": "INT64", "shape": shape, "data": [1] * len(tokens.ids)},
    ]
    return orjson.dumps({"inputs": inputs}), JSON


def by_the_client_in_binary(text: str, tokenizer: Tokenizer) -> Body:
    (tokens,) = tokenizer.encode([text])
    ids = np.array(tokens.ids, dtype=np.int64)
    data = ids.tobytes() + np.ones_like(ids).tobytes()
    inputs = [
        {"name": name, "datatype": "INT64", "shape": [1, len(ids)], "parameters": {"binary_data_size": ids.nbytes}}
        for name in ("ids", "mask")
    ]
    head = orjson.dumps({"inputs": inputs})
    return head + data, {"inference-header-content-length": str(len(head))}


def for_openai(text: str, _: Tokenizer) -> Body:
    return orjson.dumps({"model": MODEL, "input": text, "encoding_format": "base64"}), JSON


WAYS: dict[str, tuple[str, Callable[[str, Tokenizer], Body]]] = {
    "text": (f"/v2/models/{MODEL}/infer", in_the_pod),
    "tokens, JSON": (f"/v2/models/{MODEL}/infer", by_the_client),
    "tokens, binary": (f"/v2/models/{MODEL}/infer", by_the_client_in_binary),
    "/v1/embeddings": ("/v1/embeddings", for_openai),
}


def measure(server: PodProcess, way: str, given: Sequence[str], tokenizer: Tokenizer) -> dict[str, float]:
    """Median seconds of a request, and processor seconds of client and pod together."""
    path, make = WAYS[way]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    took = []
    mine, theirs = time.process_time(), cpu_seconds(server.process.pid)
    for text in given:
        began = time.perf_counter()
        body, headers = make(text, tokenizer)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - began)
        assert answer.status == 200
    used = time.process_time() - mine + cpu_seconds(server.process.pid) - theirs
    connection.close()
    return {"p50": float(np.median(took)), "cpu": used / len(given)}


def pod_figure(rounds: int, requests: int) -> dict[str, Any]:
    """All ways, round by round."""
    tokenizer, given = Tokenizer((package_model() / "tokenizer.json").read_bytes()), texts(requests)
    theirs, mine = split_processors()
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, minilm_pod(Path(folder), theirs, {"maxWait": "0ms"}) as server:
        os.sched_setaffinity(0, mine)
        for way in WAYS:
            measure(server, way, given[:50], tokenizer)
        for _ in range(rounds):
            for way in WAYS:
                found[way].append(measure(server, way, given, tokenizer))
    for way, each in found.items():
        figures = over_rounds(each)
        print(f"{way:>16}  p50 {told(figures['p50'], 'ms', 1e3)}  processor {told(figures['cpu'], 'ms', 1e3)}")
    ratio = {
        name: spread(one[name] / other[name] for one, other in zip(found["text"], found["tokens, JSON"], strict=True))
        for name in ("p50", "cpu")
    }
    print(f"text against tokens in JSON: p50 {told(ratio['p50'])}, processor {told(ratio['cpu'])}")
    return {"ways": {way: over_rounds(each) for way, each in found.items()}, "text_to_tokens": ratio}


async def handed_over(tokenizer: Tokenizer, given: Sequence[str]) -> float:
    """Processor seconds of one text by way of the crew."""
    loop = asyncio.get_running_loop()
    crew: Crew[list[str], list[Tokens]] = Crew(
        "text", lambda p: [tokenizer.encode(t) for t in p], loop.call_soon_threadsafe, lambda _, __: None,
        threads=1, most=64, bytes=1 << 17,
    )  # fmt: skip
    began = time.process_time()
    for text in given:
        future: asyncio.Future[Any] = loop.create_future()
        call = Call(time.monotonic() + 10, lambda: False, lambda _: None)
        crew.submit(Job([text], len(text), call, future.set_result))
        await future
    used = time.process_time() - began
    crew.stop()
    return used / len(given)


def thread_figure(rounds: int, requests: int) -> dict[str, Any]:
    """Both, round by round."""
    import uvloop

    tokenizer, given = Tokenizer((package_model() / "tokenizer.json").read_bytes()), texts(requests)
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        began = time.process_time()
        for text in given:
            tokenizer.encode([text])
        here = (time.process_time() - began) / len(given)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found.append({"here": here, "handed": runner.run(handed_over(tokenizer, given))})
    figures = over_rounds(found)
    print(f"on the event loop {told(figures['here'], 'us', 1e6)}, by a thread {told(figures['handed'], 'us', 1e6)}")
    return dict(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", choices=("pod", "thread"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    whole: dict[str, Any] = {"machine": machine()}
    if options.figure != "pod":
        whole["thread"] = thread_figure(options.rounds, 5 * options.requests)
    if options.figure != "thread":
        whole["pod"] = pod_figure(options.rounds, options.requests)
    print(json.dumps(whole))
