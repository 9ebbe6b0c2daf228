"""CPU time of the event loop for one streamed token. By hand: `python tests/bench/bench_openai_streams.py`.

One process has three servers on one event loop (uvloop): the pod's own; the same events by ASGI's `send`, from a task
and a queue for each stream; and FastAPI's StreamingResponse with a pydantic model for each token, as is usual. An
engine that is none makes a token for each of the streams at every step and hands all of a step over at once. Another
process reads. Prints the CPU microseconds (user and system) of a token and their ratios, medians over rounds in turn.
"""

import argparse
import asyncio
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import uvloop
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from headway_runtime.generation.opened import Kept
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import FinishReason, Generate, Piece, Usage
from headway_runtime.generation_knobs import Bounds
from headway_runtime.generator import Generator
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.protocols.http.documents import documents
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.server import serve
from headway_runtime.protocols.openai.events import Events
from headway_runtime.protocols.openai.identity import identify
from headway_runtime.protocols.openai.logprobs import TokenTexts
from headway_runtime.protocols.openai.prompts import Prompt
from headway_runtime.protocols.openai.question import Question
from pydantic import BaseModel

from tests.bench.figures import machine
from tests.unit.serving_desk import COLD
from tests.unit.text_server import MAX_LENGTH, ScriptedEngine, facts, tokenizer

MODEL = COLD.model
READER = Path(__file__).with_name("stream_reader.py")
WAYS = ("/v1/completions", "/asgi", "/usual")
WORD = Piece(0, " word", (7,))
Take = Callable[[Piece | None], None]


class Delta(BaseModel):
    """As vLLM and others have it."""

    content: str | None = None


class Choice(BaseModel):
    """One of a chunk."""

    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: str | None = None


class Chunk(BaseModel):
    """One event."""

    id: str = "chatcmpl-0123456789abcdef"
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = MODEL
    system_fingerprint: str = "0a1b2c3d"
    choices: list[Choice]


class Rivals:
    """The other two servers; `takes` are their streams."""

    def __init__(self) -> None:
        self.takes: list[Take] = []
        question = Question(("p",), Generate((5,), 10), 10, stream=True)
        identity = identify(chat=False, model=MODEL, revision="0a1b2c3d")
        self._events = Events(identity, question, [Prompt(question.generate)], TokenTexts(tokenizer()))
        self.usual = FastAPI()
        self.usual.post("/usual")(self._usual)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/asgi":
            await self.usual(scope, receive, send)
            return
        queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.takes.append(queue.put_nowait)
        await receive()
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        while (piece := await queue.get()) is not None:
            event = self._events.piece(0, piece)
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _usual(self) -> StreamingResponse:
        queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.takes.append(queue.put_nowait)

        async def events() -> AsyncIterator[str]:
            while (piece := await queue.get()) is not None:
                chunk = Chunk(choices=[Choice(delta=Delta(content=piece.text))])
                yield f"data: {chunk.model_dump_json()}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


async def measured(path: str, port: int, takes: Callable[[], list[Take]], arguments: argparse.Namespace) -> float:
    """CPU seconds of a token."""
    command = [sys.executable, str(READER), str(port), path, MODEL, str(arguments.streams)]
    reader = await asyncio.create_subprocess_exec(*command)
    async with asyncio.timeout(60):
        while len(takes()) < arguments.streams:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)
    found = takes()
    for take in found:
        take(WORD)  # heads are written
    await asyncio.sleep(0.5)
    began = time.process_time()
    for _ in range(arguments.tokens):
        for take in found:
            take(WORD)
        await asyncio.sleep(arguments.step)
    used = time.process_time() - began
    for take in found:
        take(None)
    await reader.wait()
    return used / (arguments.tokens * len(found))


async def idle(arguments: argparse.Namespace) -> float:
    """The same of a token that goes nowhere: the loop's own steps."""
    began = time.process_time()
    for _ in range(arguments.tokens):
        await asyncio.sleep(arguments.step)
    return (time.process_time() - began) / (arguments.tokens * arguments.streams)


async def compare(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Microseconds of each way, by round."""
    pod, engine, rivals = Pod(COLD, Metrics(), Origin()), ScriptedEngine(), Rivals()
    fixed, kept = Settings(max_length=MAX_LENGTH), Kept(1, 1, "none")
    pod.install(Generator(cast("Any", engine), facts(), fixed, Bounds(4096, 256), kept))
    front = Front(pod)
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    servers = [serve(documents(front), front), serve(rivals)]
    running = [
        asyncio.create_task(server.serve([listener])) for server, listener in zip(servers, listeners, strict=True)
    ]
    ports = [listener.getsockname()[1] for listener in listeners]

    def ours() -> list[Take]:
        def take_of(stream: Any) -> Take:
            def take(piece: Piece | None) -> None:
                if piece is not None:
                    stream.pieces((piece,))
                    return
                stream.pieces((Piece(0, "", (), (), FinishReason.STOP),))
                stream.ended(Usage(1, arguments.tokens))

            return take

        return [take_of(asked.stream) for asked in engine.asked]

    found: dict[str, list[float]] = {way: [] for way in (*WAYS, "idle")}
    for _ in range(arguments.rounds):
        found["idle"].append(await idle(arguments))
        for way in WAYS:
            engine.asked.clear()
            rivals.takes.clear()
            port = ports[0] if way.startswith("/v1") else ports[1]
            takes = ours if way.startswith("/v1") else lambda: rivals.takes
            found[way].append(await measured(way, port, takes, arguments))
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*running)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--step", type=float, default=0.05, help="seconds")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(compare(arguments))
    base = statistics.median(found["idle"])
    print(
        f"{machine()}\n{arguments.streams} streams, a token each {arguments.step * 1e3:g} ms; idle {base * 1e6:.2f} µs"
    )
    own = statistics.median(found[WAYS[0]])
    for way in WAYS:
        used = statistics.median(found[way])
        least, most = min(found[way]), max(found[way])
        print(f"{way:18} {used * 1e6:6.1f} µs a token ({least * 1e6:.1f}-{most * 1e6:.1f}), {used / own:.2f} of ours")


if __name__ == "__main__":
    main()
