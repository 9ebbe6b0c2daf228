"""SIGTERM under load, with a real pod: no request that was accepted is lost, and every answer is right."""

import json
import signal
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import torch
from headway_runtime import life

from tests.unit.pod_process import MODEL, PodProcess, pod, question, until
from tests.unit.small_models import Encoder, export, prepare

CLIENTS = 6


@dataclass
class Client:
    """Asks in a closed loop, over connections that it keeps, until nobody listens any more."""

    url: str
    length: int
    stop: threading.Event
    answered: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = torch.arange(1, self.length + 1)
        with torch.no_grad():  # here, because the seed of its weights is the process's
            answers = Encoder().eval()(self.ids[None], torch.ones(1, self.length, dtype=torch.int64))
        self.expected = answers["pooled"][0]

    def live(self) -> None:
        with httpx.Client(timeout=20) as http:
            while not self.stop.is_set():
                try:
                    answer = http.post(self.url, json=question([self.ids.tolist()]))
                except httpx.ConnectError:
                    return  # nobody listens: the request was never accepted
                except httpx.TransportError as error:
                    self.lost.append(repr(error))
                    continue
                if answer.status_code == 200:
                    data = next(o["data"] for o in answer.json()["outputs"] if o["name"] == "pooled")
                    if not torch.allclose(torch.tensor(data), self.expected, rtol=1e-4, atol=1e-5):
                        self.lost.append("a wrong answer")
                    self.answered += 1
                elif answer.headers.get("x-headway-not-admitted") == "1":
                    self.refused += 1
                    time.sleep(0.02)
                else:
                    self.lost.append(answer.text)


@pytest.mark.parametrize("instances", [1, 2])
def test_a_pod_that_is_told_to_end_under_load_loses_no_accepted_request(tmp_path: Path, instances: int) -> None:
    model = prepare(export(Encoder, tmp_path / "model.pt2"), tmp_path / "model")
    buckets = {"batch": [1, 8], "sequence": [16]}
    batching = {"shapeBuckets": buckets, "dimensions": {"sequence": "ids.1"}, "instances": instances}
    with pod(tmp_path, model, batching=batching, drainTimeout="5s") as serving:
        serving.wait_for_phase()
        stop = threading.Event()
        clients = [Client(serving.infer, 1 + number * 2, stop) for number in range(CLIENTS)]
        threads = [threading.Thread(target=client.live) for client in clients]
        try:
            for thread in threads:
                thread.start()
            patience = time.monotonic() + 60  # a busy machine takes seconds for the first answers
            while not all(client.answered for client in clients) and time.monotonic() < patience:
                time.sleep(0.05)
            before = sum(client.answered for client in clients)
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.wait(30) == 0, log(serving)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
    assert [client.lost for client in clients] == [[]] * CLIENTS
    assert before >= CLIENTS
    assert sum(client.answered for client in clients) > before, "it served while it drained"


def test_who_connects_as_a_pod_ends_is_told_so_or_finds_nobody(tmp_path: Path) -> None:
    """At no moment do so many wait for the loop to accept them that the end of the listener resets them all."""
    model = prepare(export(Encoder, tmp_path / "model.pt2"), tmp_path / "model")
    buckets = {"batch": [1, 8], "sequence": [16]}
    batching = {"shapeBuckets": buckets, "dimensions": {"sequence": "ids.1"}}
    met: list[str] = []
    with pod(tmp_path, model, batching=batching, drainTimeout="1s") as serving:
        serving.wait_for_phase()
        threads = [threading.Thread(target=come, args=(serving.port, met)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        until(lambda: met.count("200") > CLIENTS)
        serving.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        assert serving.process.wait(30) == 0, log(serving)
    found = Counter(met)
    assert found.keys() <= {"200", "503", "reset", "refused", "late"}, found
    assert found["refused"] == CLIENTS, found
    assert found["503"] > 0, found
    assert found["reset"] <= 1, "between the last look at who waits and the end of the listener, one may slip in"


def come(port: int, met: list[str]) -> None:
    """Ask over a connection of its own each time, until nobody listens. *late* is who got no answer, and was so slow to
    ask that the pod need not have waited.
    """
    body = json.dumps(question([[1, 2, 3]])).encode()
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    while True:
        began = sent = time.monotonic()
        try:
            client = socket.create_connection(("127.0.0.1", port), timeout=30)
        except ConnectionRefusedError:
            met.append("refused")
            return
        with client:
            try:
                client.sendall(head + body)
                sent = time.monotonic()
                answer = client.recv(65536)[9:12].decode()
            except ConnectionError:
                answer = ""
            met.append(answer or ("reset" if sent - began < life.FAREWELL / 2 else "late"))


def log(serving: PodProcess) -> str:
    return (serving.folder / "log").read_text()
