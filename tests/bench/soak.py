"""A long load on a pod in which every answer is checked, among clients that misbehave and knobs that change.

The program's own answers are computed beforehand, in this process, one request at a time. Requests of several rows and
many lengths come in JSON and in binary, in closed and open loops, while somebody else sends what is malformed, hangs up
in the middle, or goes before the answer comes.
"""

import contextlib
import itertools
import json
import random
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from headway_runtime.bench.connection import Address
from headway_runtime.bench.encode import http_requests
from headway_runtime.bench.inputs import Array, Maker, Request
from headway_runtime.bench.load import closed_loop, open_loop
from headway_runtime.bench.model import ModelInfo, TensorInfo
from headway_runtime.bench.samples import Samples
from headway_runtime.bench.sizes import Distribution
from headway_runtime.program import Program

from tests.unit.pod_process import MODEL, PodProcess
from tests.unit.small_models import WORDS

INFO = ModelInfo(
    MODEL,
    "",
    (TensorInfo("ids", "INT64", ("batch", "sequence")), TensorInfo("mask", "INT64", ("batch", "sequence"))),
    "batch",
)
OUTPUTS = ("pooled", "tokens")
BUCKETS = {"batch": [1, 4, 16], "ids.1": [8, 32]}
KNOBS: Sequence[dict[str, Any]] = (
    {"maxWait": "0ms"},
    {"maxWait": "1ms", "maxBatch": 3},
    {"maxWait": "2ms", "maxBatch": 16, "queue": {"capacity": 24}},
    {"maxWait": "0ms", "maxBatch": 1},
    {"maxWait": "1ms", "cacheBytes": "1Mi"},
)
MISDEEDS = (
    b"POST /v2/models/encoder/infer HTTP/1.1\r\ncontent-length: 9\r\n\r\nnot json!",
    b"POST /v2/models/encoder/infer HTTP/1.1\r\ncontent-length: 900\r\n\r\n{",
    b"POST /v2/models/encoder/infer HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"GET /v2/models/encoder/infer HTTP/1.1\r\n\r\n",
    b'POST /v2/models/encoder/infer HTTP/1.1\r\ncontent-length: 13\r\n\r\n{"inputs":[]}',
    b"\x16\x03\x01 this is not HTTP\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
)


@dataclass
class Soak:
    """What came of it. `wrong`: the first answers that were not what the program says."""

    checked: int = 0
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    misdeeds: int = 0
    memory: list[tuple[float, int]] = field(default_factory=list)  # seconds since the start, bytes
    cpu: float = 0.0

    def growth(self) -> tuple[int, float]:
        """Bytes by which the pod's memory grew from the second quarter to the last, and that as a share of it."""
        end = self.memory[-1][0]
        spans = ((0.25, 0.5), (0.75, 1))
        quarters = [[rss for at, rss in self.memory if low <= at / end <= high] for low, high in spans]
        before, after = (statistics.median(quarter) for quarter in quarters)
        return int(after - before), (after - before) / before


def requests(count: int, seed: int = 11) -> list[Request]:
    """Requests of 1 to 3 rows and 1 to 32 words, some words masked."""
    sizes = {"batch": Distribution(1, 3), "sequence": Distribution(1, 32, 9)}
    made = Maker(INFO, sizes, {"ids": (0, WORDS - 1), "mask": (0, 1)}).make(count, seed)
    for each in made:
        each.arrays["mask"][:, 0] = 1  # a row without a word has no mean
    return made


def expected(program: Program, asked: Sequence[Request]) -> list[tuple[Array, ...]]:
    """What the program answers to each alone."""
    with torch.inference_mode():
        answers = [program.run([torch.from_numpy(each.arrays[name]) for name in ("ids", "mask")]) for each in asked]
    return [tuple(tensor.numpy() for tensor in answer) for answer in answers]


def soak(server: PodProcess, program: Program, *, seconds: float, slice_seconds: float = 2.0) -> Soak:
    """Load for `seconds`, in slices that differ in form, loop and knobs."""
    address = Address("127.0.0.1", server.port)
    asked = requests(256)
    truth = expected(program, asked)
    forms = {form: http_requests(INFO, asked, host="x", binary=form == "binary") for form in ("json", "binary")}
    found, over = Soak(), threading.Event()
    beside = [
        threading.Thread(target=_misbehave, args=(address, over, found)),
        threading.Thread(target=_watch_memory, args=(server.process.pid, over, found)),
    ]
    for thread in beside:
        thread.start()
    try:
        end = time.monotonic() + seconds
        for number in itertools.count():
            left = end - time.monotonic()
            if left <= 0.05:
                break
            form, knobs = ("json", "binary")[number % 2], KNOBS[number % len(KNOBS)]
            server.apply_knobs(knobs)
            samples = _slice(
                address, forms[form], number, min(left, slice_seconds), checker(found, truth, binary=form == "binary")
            )
            found.lost += samples.losses
    finally:
        over.set()
        for thread in beside:
            thread.join()
    return found


def _slice(
    address: Address, wire: list[bytes], number: int, seconds: float, observe: Callable[[int, int, bytes], None]
) -> Samples:
    if number % 3 == 2:
        return open_loop(address, wire, rate=300, seconds=seconds, connections=64, seed=number, observe=observe)
    connections = (1, 8, 32)[number % 3]
    return closed_loop(address, wire, connections=connections, seconds=seconds, observe=observe)


def checker(found: Soak, truth: Sequence[tuple[Array, ...]], *, binary: bool) -> Callable[[int, int, bytes], None]:
    """Counts answers, and compares those with status 200 with the truth."""
    read = read_binary if binary else read_json

    def check(at: int, status: int, body: bytes) -> None:
        found.statuses[status] += 1
        if status != 200:
            return
        found.checked += 1
        answers = read(body)
        for name, wanted in zip(OUTPUTS, truth[at], strict=True):
            got = answers.get(name)
            if got is None or got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-4, atol=1e-5):
                if len(found.wrong) < 10:
                    found.wrong.append(f"request {at}, {name}: {None if got is None else got.tolist()} for {wanted}")
                return

    return check


def read_json(body: bytes) -> dict[str, Array]:
    """The outputs of an answer in JSON."""
    outputs = json.loads(body)["outputs"]
    return {o["name"]: np.array(o["data"], dtype=np.float32).reshape(o["shape"]) for o in outputs}


def read_binary(body: bytes) -> dict[str, Array]:
    """The outputs of an answer in binary: its JSON head ends where the braces close."""
    document, at = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    found = {}
    for output in document["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = np.frombuffer(body[at : at + size], np.float32).reshape(output["shape"])
        at += size
    return found


def _misbehave(address: Address, over: threading.Event, found: Soak) -> None:
    random_ = random.Random(3)
    whole = http_requests(INFO, requests(8, seed=4), host="x")
    while not over.wait(0.02):
        with contextlib.suppress(OSError), socket.create_connection((address.host, address.port), 2) as client:
            client.settimeout(0.05)
            match random_.randrange(4):
                case 0:  # goes before the answer comes
                    client.sendall(random_.choice(whole))
                case 1:  # hangs up in the middle
                    client.sendall(random_.choice(whole)[: random_.randrange(1, 200)])
                case 2:  # sends no more, and still reads
                    client.sendall(random_.choice(whole))
                    client.shutdown(socket.SHUT_WR)
                    client.recv(65536)
                case _:
                    client.sendall(random_.choice(MISDEEDS))
                    client.recv(65536)
        found.misdeeds += 1


def _watch_memory(pid: int, over: threading.Event, found: Soak) -> None:
    began = time.monotonic()
    while not over.wait(0.1 if time.monotonic() - began < 60 else 1):
        status = Path(f"/proc/{pid}/status").read_text()
        rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        found.memory.append((time.monotonic() - began, rss * 1024))
