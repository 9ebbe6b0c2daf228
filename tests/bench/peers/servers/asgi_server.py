"""A reference, not a product: raw ASGI on uvicorn with uvloop, httptools and orjson, and the simplest dynamic batcher.

It validates nothing, bounds no queue and knows no deadline. For a small model the batch runs on the event loop, which
is cheapest; for a large one in a thread, so that requests are still read.
"""

import asyncio
from typing import Any

import orjson
import uvicorn
from served import config, load

_HEADERS = [(b"content-type", b"application/json")]


class Batcher:
    """Runs what has gathered after `max_wait`, when `max_batch` have, or when the last run is over."""

    def __init__(self, max_batch: int, max_wait: float, threaded: bool) -> None:
        self._run, self._max_batch, self._max_wait, self._threaded = load(), max_batch, max_wait, threaded
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False

    def submit(self, request: Any) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        slot = loop.create_future()
        self._waiting.append((request, slot))
        if not self._busy:
            if len(self._waiting) >= self._max_batch:
                self._start()
            elif self._timer is None:
                self._timer = loop.call_later(self._max_wait, self._start)
        return slot

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
        if not batch:
            return
        requests = [request for request, _ in batch]
        if self._threaded:
            self._busy = True
            running = asyncio.get_running_loop().run_in_executor(None, self._run, requests)
            running.add_done_callback(lambda done: self._finish(batch, done.result()))
        else:
            self._finish(batch, self._run(requests))

    def _finish(self, batch: list[tuple[Any, "asyncio.Future[Any]"]], answers: list[Any]) -> None:
        self._busy = False
        for (_, slot), answer in zip(batch, answers, strict=True):
            slot.set_result(answer)
        if self._waiting:
            self._start()


class App:
    def __init__(self) -> None:
        settings = config()
        self._batcher = Batcher(settings["max_batch"], settings["max_wait"], settings["workload"] != "mlp")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        answer = orjson.dumps(await self._batcher.submit(orjson.loads(body)))
        headers = [*_HEADERS, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(
        App(),
        host="127.0.0.1",
        port=config()["port"],
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
    )
