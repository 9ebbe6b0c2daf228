"""The HTTP server of a pod that generates text, with an engine of which the test says what it makes, and when.

Everything above the engine is real: service, protocol, sockets. What needs a decoder is tested with a pod process.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, cast

import httpx
import uvloop
from headway_api.podconfig import GenerationReport
from headway_runtime.errors import RequestError
from headway_runtime.generation.constraints import Constraints
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.opened import Kept
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import FinishReason, Generate, Piece, Stream, TokenLogprob, Usage
from headway_runtime.generation_knobs import Bounds
from headway_runtime.generator import Generator
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.prepare.decoder import DecoderFacts
from headway_runtime.protocols.http.documents import documents
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.server import serve
from tokenizers import Tokenizer

from tests.decoders import tiny_tokenizer
from tests.unit.http_server import HttpServer
from tests.unit.pod_process import until
from tests.unit.serving_desk import COLD

MAX_LENGTH = 256
HERMES = "{% if tools %}<tool_call>{% endif %}"
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}" + HERMES + "{% endif %}"
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@cache
def tokenizer() -> Tokenizer:
    return tiny_tokenizer().backend_tokenizer


def facts(**changes: Any) -> Facts:
    """Of a decoder that is not there."""
    vocabulary = tokenizer().get_vocab_size()
    decoder = DecoderFacts(512, (1,), TEMPLATE, "<|begin|>", "<|end|>", **changes)
    return Facts(
        decoder, tokenizer(), vocabulary, MAX_LENGTH, Constraints(tokenizer(), vocabulary=vocabulary, end=decoder.end)
    )


@dataclass
class Asked:
    """A request that the engine has."""

    number: int
    generate: Generate
    stream: Stream
    cancelled: bool = False
    made: int = 0

    @property
    def prompt(self) -> str:
        return str(tokenizer().decode(list(self.generate.prompt), skip_special_tokens=False))


Script = Callable[[Asked], None]


@dataclass
class ScriptedEngine:
    """Calls `script` for each request, on the event loop, or leaves it to the test where there is none."""

    asked: list[Asked] = field(default_factory=list)
    script: Script | None = None
    refusal: RequestError | None = None

    waiting = 0

    def submit(self, generate: Generate, stream: Stream) -> int:
        if self.refusal is not None:
            raise self.refusal
        asked = Asked(len(self.asked), generate, stream)
        self.asked.append(asked)
        if self.script is not None:
            asyncio.get_running_loop().call_soon(self.script, asked)
        return asked.number

    def cancel(self, number: int) -> None:
        asked = self.asked[number]
        if not asked.cancelled:
            asked.cancelled = True
            asked.stream.ended(None)

    def apply(self, _: Settings) -> None:
        pass

    def sweep(self) -> None:
        pass

    def report(self) -> GenerationReport:
        return GenerationReport(
            block_tokens=16, blocks=8, blocks_free=8, bytes_per_token=1, cache_bytes=1, max_length=1, sequences=1
        )

    def busy_for(self) -> float:
        return 0.0


@cache
def _ids(text: str) -> tuple[int, ...]:
    return tuple(tokenizer().encode(text, add_special_tokens=False).ids)


def say(asked: Asked, text: str, *, index: int = 0, finish: FinishReason | None = None, told: bool = False) -> None:
    """One piece. `told`: with the logarithms of its tokens, each -0.5, the likeliest itself and the end."""
    ids = _ids(text)
    logprobs = tuple(TokenLogprob(each, -0.5, ((each, -0.5), (1, float("-inf")))) for each in ids) if told else ()
    asked.made += len(ids)
    asked.stream.pieces((Piece(index, text, ids, logprobs, finish),))


def end(asked: Asked, outcome: RequestError | None = None, *, cached: int = 0) -> None:
    """The last of a request."""
    length = len(asked.generate.prompt)
    told = (None, *[TokenLogprob(token, -0.25) for token in asked.generate.prompt[1:]])
    known = told if asked.generate.prompt_logprobs is not None else ()
    asked.stream.ended(outcome or Usage(length, asked.made, cached, prompt_logprobs=known))


def saying(*texts: str, finish: FinishReason = FinishReason.STOP) -> Script:
    """A script: these pieces of every answer, one in each turn of the loop."""

    def script(asked: Asked) -> None:
        told = asked.generate.logprobs is not None
        loop = asyncio.get_running_loop()

        def step(at: int) -> None:
            if asked.cancelled:
                return
            for index in range(asked.generate.n):
                say(asked, texts[at], index=index, finish=finish if at == len(texts) - 1 else None, told=told)
            if at == len(texts) - 1:
                end(asked)
            else:
                loop.call_soon(step, at + 1)

        step(0)

    return script


@dataclass
class TextServer(HttpServer):
    """A served pod, and its engine."""

    engine: ScriptedEngine = field(default_factory=ScriptedEngine)

    def wait(self, number: int = 1) -> Asked:
        """The request number `number`, counted from 1, once the engine has it."""
        return until(lambda: self.engine.asked[number - 1 : number], f"request {number}")[0]

    @contextmanager
    def fresh(self) -> Iterator[Self]:
        """For one test: nothing is scripted, nothing was asked; at its end nothing is in flight."""
        self.engine.script = self.engine.refusal = None
        self.engine.asked.clear()
        yield self
        self.quiet()


@contextmanager
def text_server(known: Facts | None = None) -> Iterator[TextServer]:
    """Serve; with the model `encoder`, as the other tests of protocols do."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    started = threading.Event()
    made: list[TextServer] = []

    async def live() -> None:
        pod, engine = Pod(COLD, Metrics(), Origin()), ScriptedEngine()
        fixed = Settings(max_length=MAX_LENGTH)
        kept = Kept(1, 1, "none")
        pod.install(Generator(cast("Any", engine), known or facts(), fixed, Bounds(64, 256), kept))
        front = Front(pod)
        server = serve(documents(front), front)
        port, loop = listener.getsockname()[1], asyncio.get_running_loop()
        made.append(TextServer(pod, front, server, loop, port, httpx.Client(timeout=60), engine=engine))
        started.set()
        await server.serve([listener])

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    served = made[0]
    try:
        yield served
    finally:
        served.client.close()
        served.server.should_exit = True
        with contextlib.suppress(RuntimeError):
            served.loop.call_soon_threadsafe(_close_all, served)
        thread.join(60)
        assert not thread.is_alive(), "the server ends"


def _close_all(served: TextServer) -> None:
    for connection in list(served.server.server_state.connections):
        connection.transport.abort()  # type: ignore[union-attr]
