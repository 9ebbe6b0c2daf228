"""A stand-in for a runtime pod: `python pod.py HOST PORT MODEL REVISION`. A real HTTP server in a process of its own.

It keeps the runtime's contract with the router: it is ready as its own model and revision only, answers name the
revision, and a request that asks for it by `x-test-refuse` is refused before admission. GET `/seen` tells which
requests (header `x-test-id`) it admitted, and how often. SIGUSR1 starts its drain: no longer ready, and still serving.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from typing import Any

import uvicorn


class Pod:
    """The ASGI application of one pod."""

    def __init__(self, model: str, revision: str) -> None:
        self.model, self.revision = model, revision
        self.seen: Counter[str] = Counter()
        self.ready = True

    def drain(self, *_: object) -> None:
        """Stop being ready."""
        self.ready = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        status, extra, answer = await self._answer(scope["path"], headers, size)
        body = json.dumps(answer).encode()
        answered = [(b"content-type", b"application/json"), (b"x-headway-revision", self.revision.encode()), *extra]
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*answered, length]})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, path: str, headers: dict[str, str], size: int
    ) -> tuple[int, list[tuple[bytes, bytes]], dict[str, Any]]:
        if path.endswith("/ready"):
            known = path == f"/v2/models/{self.model}/versions/{self.revision}/ready" and headers["host"] == self.model
            return (200 if self.ready else 503) if known else 404, [], {"ready": known and self.ready}
        if path == "/seen":
            return 200, [], dict(self.seen)
        if path.startswith("/inference."):
            return 404, [], {"error": "a pod from before gRPC"}
        if headers.get("x-test-refuse") == self.revision:
            return 503, [(b"x-headway-not-admitted", b"1")], {"error": "full"}
        self.seen[headers.get("x-test-id", "")] += 1
        await asyncio.sleep(float(headers.get("x-test-seconds", "0")))
        if "x-test-die" in headers:
            os._exit(1)
        return int(headers.get("x-test-status", "200")), [], {"revision": self.revision, "path": path, "bytes": size}


def main() -> None:
    """Serve until terminated."""
    host, port, model, revision = sys.argv[1:]
    pod = Pod(model, revision)
    signal.signal(signal.SIGUSR1, pod.drain)
    app: Any = pod
    uvicorn.run(app, host=host, port=int(port), log_level="error", timeout_keep_alive=75, lifespan="off")


if __name__ == "__main__":
    main()
