"""One request for text on a connection: read, prepared, begun, and answered as a whole or piece by piece.

complete ─► document ─► read (completions, chat) ─► prompts ─► GenerateService.start, once for each prompt
                                                   head and opening ◄─ first piece   (errors before it have a status)
                                                              event ◄─ each piece
                                                   usage, [DONE] ◄─ the last end    (an error: an event, and no [DONE])

A piece is written as it comes, by one call and without a task. What a client does not read waits in its connection: up
to `MAX_UNREAD` bytes, then its answer is given up; nobody else notices. One that leaves frees its sequences at once.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from headway_runtime.errors import DeadlineExceededError, RequestError
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import Piece, Stream, Usage
from headway_runtime.protocols.http.bodies import is_large
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head
from headway_runtime.protocols.http.posted import Posted, shown
from headway_runtime.protocols.http.turns import Wire
from headway_runtime.protocols.openai import chat, completions
from headway_runtime.protocols.openai.documents import document_of
from headway_runtime.protocols.openai.errors import SlowReaderError, check_model, error_body
from headway_runtime.protocols.openai.events import PING, Events
from headway_runtime.protocols.openai.identity import identify
from headway_runtime.protocols.openai.logprobs import TokenTexts
from headway_runtime.protocols.openai.prompts import Prompt, is_at_once, prompts_of
from headway_runtime.protocols.openai.question import Question
from headway_runtime.protocols.openai.replies import Reply

MAX_UNREAD = 1 << 20  # bytes
PING_SECONDS = 15.0  # of silence, after which a stream says that it goes on: proxies end what is silent for a minute
LEAST_SECONDS = 0.001  # of a timer: uvloop's clock has milliseconds, and would begin again and again in less
LOOK_SECONDS = 0.1  # between two looks whether a client that has shut down its sending half is still there
READERS: dict[str, Callable[[dict[str, Any], Facts], Question]] = {
    completions.PATH: completions.read,
    chat.PATH: chat.read,
}


class Answering(Posted):
    """Of one of the two routes, which is the `path`."""

    __slots__ = (
        *("_chunked", "_last", "_left", "_numbers", "_path", "_question"),
        *("_over", "_ticking", "_usages", "_writer"),
    )

    def __init__(
        self,
        wire: Wire,
        front: Front,
        head: Head,
        refusal: RequestError | None,
        keep_alive: bool,
        path: str,
        *,
        chunked: bool,
    ) -> None:
        super().__init__(wire, front, head, refusal, keep_alive)
        self._path = path
        self._chunked = chunked  # HTTP/1.0 has no chunks: a stream ends with its connection
        self._question: Question | None = None
        self._writer: Events | Reply | None = None
        self._numbers: list[int] = []  # of the service, one for each prompt
        self._usages: dict[int, Usage] = {}  # by prompt
        self._left = 0  # prompts that are not answered in full
        self._over = False  # nothing more is wanted of them
        self._last = 0.0  # loop.time() of what was written last
        self._ticking: asyncio.TimerHandle | None = None

    def error_document(self, error: RequestError) -> bytes:
        """As OpenAI has it."""
        return error_body(error)

    def call(self) -> None:
        """The body is whole."""
        if is_large(self._body, self._head):
            self.elsewhere(self._read, self._ask)
            return
        try:
            question = self._read()
        except Exception as error:
            self.fail(shown(error))
        else:
            self._ask(question)

    def half_closed(self) -> None:
        """Its client may have left: only what is written tells."""
        if not self._called or self.response_complete:
            return
        if self.response_started and isinstance(self._writer, Events):
            self._send(self._writer, PING)
        self._tick_in(LOOK_SECONDS)

    def give_up(self, error: RequestError) -> None:
        """Where the answer has begun, an event says so."""
        self._abandon(error)

    def lost(self) -> None:
        """The connection is gone."""
        super().lost()
        if not self.response_complete:
            self._give_up()

    def end(self, status: int | None, refused: RequestError | str | None) -> None:
        """Account for it, once."""
        super().end(status, refused)
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def _read(self) -> Question:
        """What is asked; in a thread if the body is large. Raises RequestError."""
        document = document_of(self._body, self._head, self._most)
        facts = self._front.generation.facts
        check_model(document.get("model"), self._front.pod.config.model)
        return READERS[self._path](document, facts)

    def _ask(self, question: Question) -> None:
        try:
            facts = self._front.generation.facts
            self._question = question
            work = partial(prompts_of, question, facts, self._deadline, self.gone)
            if is_at_once(question):
                self._begin(facts, work())
            else:
                self.after(self._front.prompts.submit(work), partial(self._begin_or_fail, facts))
                self._tick_in(max(0.0, self._deadline - time.monotonic()))
        except Exception as error:
            self._abandon(shown(error), len(self._numbers))

    def _begin_or_fail(self, facts: Facts, prompts: list[Prompt]) -> None:
        try:
            self._begin(facts, prompts)
        except Exception as error:
            self._abandon(shown(error), len(self._numbers))

    def _begin(self, facts: Facts, prompts: list[Prompt]) -> None:
        """Put every prompt in line. Raises RequestError."""
        question, config, head = self._question, self._front.pod.config, self._head
        assert question is not None
        identity = identify(chat=question.is_chat, model=config.model, revision=config.revision)
        writer = Events if question.stream else Reply
        self._writer = writer(identity, question, prompts, TokenTexts(facts.tokenizer))
        self._left = len(prompts)
        self.release()
        deadline = inf if head.wait is None else self._began + head.wait
        for at, prompt in enumerate(prompts):
            stream = Stream(
                deadline,
                first_by=self._deadline,
                pieces=partial(self._pieces, at * question.generate.n),
                ended=partial(self._ended, at),
                priority=head.priority,
            )
            self._numbers.append(self._front.generation.start(prompt.generate, stream))
        self._last = self._wire.loop.time()
        self._tick_in(PING_SECONDS)

    def _pieces(self, first: int, pieces: tuple[Piece, ...]) -> None:
        """What one step made of the answers from number `first` on."""
        writer = self._writer
        if self._over:
            return
        if isinstance(writer, Reply):
            for piece in pieces:
                writer.add(first + piece.index, piece)
        elif self._wire.half_closed and self._wire.hung_up():
            self._leave()
        else:
            assert writer is not None
            events = b"".join([writer.piece(first + piece.index, piece) for piece in pieces])
            if events:
                self._send(writer, events)

    def _ended(self, at: int, outcome: Usage | RequestError | None) -> None:
        """A prompt is answered in full, or will not be."""
        if self._over:
            return
        if isinstance(outcome, RequestError):
            self._abandon(outcome, len(self._numbers) - 1)
        elif outcome is None:
            self._leave()
        else:
            self._usages[at] = outcome
            self._left -= 1
            if not self._left:
                self._over = True
                self._finish([self._usages[each] for each in range(len(self._numbers))])

    def _finish(self, usages: list[Usage]) -> None:
        writer = self._writer
        if isinstance(writer, Reply):
            if writer.is_long:
                self.elsewhere(partial(writer.document, usages), self._put)
            else:
                self._put(writer.document(usages))
            return
        assert writer is not None
        last = self._opened(writer) + self._framed(writer.end(usages), last=True)
        self.close_if_ending()
        self.end(200, None)
        self._wire.put(self, last)

    def _put(self, content: bytes) -> None:
        """The whole answer."""
        self.close_if_ending()
        head = self._front.answers.plain(self._wire.server_state, 200, len(content), [], closes=not self.keep_alive)
        self.end(200, None)
        self._wire.put(self, head, content)

    def _send(self, writer: Events, events: bytes) -> None:
        """Write at once, whoever else waits."""
        self._last = self._wire.loop.time()
        unread = self._wire.add(self._opened(writer) + self._framed(events))
        if unread > MAX_UNREAD:
            self._abandon(SlowReaderError(f"{MAX_UNREAD} bytes of the answer wait to be read: read it as it comes"))

    def _opened(self, writer: Events) -> bytes:
        """What comes before the first event; later, nothing."""
        if self.response_started:
            return b""
        self.response_started = True
        self.close_if_ending()
        head = self._front.answers.events(self._wire.server_state, chunked=self._chunked, closes=not self.keep_alive)
        opening = writer.opening()
        return head + self._framed(opening) if opening else head

    def _framed(self, events: bytes, *, last: bool = False) -> bytes:
        if not self._chunked:
            return events
        return b"%x\r\n%b\r\n%b" % (len(events), events, b"0\r\n\r\n" if last else b"")

    def _abandon(self, error: RequestError, others: int = 0) -> None:
        """Answer with an error, before the answer has begun or in its midst. `others`: prompts of the request beside
        the one at fault which the model may have seen.
        """
        error.admitted = error.admitted or others > 0
        self._cancel()
        if not self.response_started:
            self.fail(error)
            return
        assert isinstance(self._writer, Events)
        if error.closes or self._front.pod.closing:
            self.keep_alive = False
        last = self._framed(self._writer.error(error), last=True)
        self.end(error.status, error)
        self._wire.put(self, last)

    def _leave(self) -> None:
        """The client has left."""
        self._give_up()
        self._wire.drop()

    def _give_up(self) -> None:
        self._cancel()
        self.end(None, "client_gone")

    def _cancel(self) -> None:
        """Whatever comes of it still is not heard."""
        self._over = True
        for number in self._numbers:
            self._front.generation.cancel(number)

    def _tick_in(self, seconds: float) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._ticking = self._wire.loop.call_later(max(LEAST_SECONDS, seconds), self._tick)

    def _tick(self) -> None:
        """Has the client left, is it too late to begin, has it been silent for too long?"""
        self._ticking = None
        if self.gone():
            self._leave()
            return
        if self._writer is None and time.monotonic() >= self._deadline:
            self._abandon(DeadlineExceededError("the deadline passed before its prompt was read; no model has seen it"))
            return
        silent = self._wire.loop.time() - self._last
        if isinstance(self._writer, Events) and silent >= PING_SECONDS:
            self._send(self._writer, PING)
            silent = 0.0
        if not self.response_complete:
            self._tick_in(self._look_in(silent))

    def _look_in(self, silent: float) -> float:
        """Seconds until the next tick. An answer that is sent whole is silent for as long as it takes."""
        if self._wire.half_closed:
            return LOOK_SECONDS
        if self._writer is None:
            return max(0.0, self._deadline - time.monotonic())
        return PING_SECONDS - silent if silent < PING_SECONDS else PING_SECONDS
