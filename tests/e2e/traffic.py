"""Clients that send real sentences through the router, on keep-alive connections, and keep account of every answer."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
from tokenizers import Tokenizer

REVISION_HEADER = "x-headway-revision"


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's end. `error` is None when it was answered with an embedding."""

    at: float  # time.monotonic()
    seconds: float
    revision: str | None
    error: str | None


def request_body(tokenizer: Tokenizer, sentences: Sequence[str]) -> dict[str, Any]:
    """An Open Inference Protocol request: ids and mask, both INT64 [len(sentences), longest]."""
    encoded = tokenizer.encode_batch(list(sentences))
    shape = [len(encoded), len(encoded[0].ids)]
    return {
        "inputs": [
            {"name": "ids", "datatype": "INT64", "shape": shape, "data": [i for e in encoded for i in e.ids]},
            {
                "name": "mask",
                "datatype": "INT64",
                "shape": shape,
                "data": [i for e in encoded for i in e.attention_mask],
            },
        ]
    }


class Traffic:
    """Sends bodies in turn from `clients` clients until closed; each pauses `pause` seconds after an answer.

    `keep_alive` of the clients (all, unless said) keep their connection, the others open one for every request.
    """

    def __init__(
        self,
        url: str,
        host: str,
        bodies: Sequence[dict[str, Any]],
        *,
        clients: int = 4,
        keep_alive: int | None = None,
        pause: float = 0.05,
    ) -> None:
        self._url, self._host, self._bodies = url, host, bodies
        self._clients, self._pause = clients, pause
        self._keep_alive = clients if keep_alive is None else keep_alive
        self.answers: list[Answer] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def failures(self) -> list[Answer]:
        return [a for a in self.answers if a.error]

    def by_revision(self, since: float = 0.0) -> Counter[str]:
        """How many requests each revision answered since a time.monotonic()."""
        return Counter(a.revision or "none" for a in self.answers if a.at >= since and not a.error)

    async def _run(self) -> None:
        new = self._clients - self._keep_alive
        async with (
            connections(self._url, self._host, kept=self._keep_alive) as keeping,
            connections(self._url, self._host, opened=new) as opening,
        ):
            clients = [keeping] * self._keep_alive + [opening] * new
            await asyncio.gather(*(self._client(client, number) for number, client in enumerate(clients)))

    async def _client(self, client: httpx.AsyncClient, number: int) -> None:
        turn = number
        while not self._stop.is_set():
            self.answers.append(await send(client, self._host, self._bodies[turn % len(self._bodies)]))
            turn += self._clients
            await asyncio.sleep(self._pause)


def connections(url: str, host: str, *, kept: int = 0, opened: int = 0) -> httpx.AsyncClient:
    """A client with `kept` connections that stay, or `opened` at a time that serve one request each."""
    limits = httpx.Limits(max_connections=max(kept, opened, 1), max_keepalive_connections=kept)
    return httpx.AsyncClient(base_url=url, headers={"host": host}, limits=limits, timeout=30)


async def send(client: httpx.AsyncClient, model: str, body: dict[str, Any]) -> Answer:
    """One inference request, never repeated."""
    start = time.monotonic()
    try:
        answer = await client.post(f"/v2/models/{model}/infer", json=body)
        error = None if answer.status_code == httpx.codes.OK else f"{answer.status_code} {answer.text[:200]}"
        revision = answer.headers.get(REVISION_HEADER)
    except httpx.HTTPError as problem:
        error, revision = f"{type(problem).__name__}: {problem}", None
    return Answer(start, time.monotonic() - start, revision, error)


def burst(url: str, model: str, bodies: Sequence[dict[str, Any]], *, count: int, clients: int = 8) -> list[Answer]:
    """`count` requests as fast as `clients` connections take them."""

    async def run() -> list[Answer]:
        async with connections(url, model, kept=clients) as client:

            async def worker(first: int) -> list[Answer]:
                return [await send(client, model, bodies[n % len(bodies)]) for n in range(first, count, clients)]

            return [answer for part in await asyncio.gather(*(worker(n) for n in range(clients))) for answer in part]

    return asyncio.run(run())
