"""One answer of a text model as a client sees it: server-sent events of `/v1/completions`, with the time of each.

Over asyncio's streams, on a connection that is kept; what is read is HTTP/1.1 with `content-length` or chunks.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from headway_runtime.bench.connection import MAX_HEAD, Address

_DONE = b"[DONE]"


class BrokenStreamError(Exception):
    """The server did not speak as it should; the message says what was lost, in a word."""


@dataclass(slots=True)
class Answer:
    """Times in seconds of `time.monotonic`. `status`: of HTTP; 0: none came, or the stream broke, and `lost` says how.

    `pieces`: when a text came; several that came at once count each. Tokens as the server counts them.
    """

    began: float
    status: int = 0
    lost: str = ""
    pieces: list[float] = field(default_factory=list)
    ended: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    retry_after: float = 0.0
    body: bytes = b""  # of a refusal

    @property
    def good(self) -> bool:
        """Whether it is whole."""
        return self.status == 200 and not self.lost

    @property
    def first(self) -> float:
        """When the first piece came; the end, where no token has a text."""
        return self.pieces[0] if self.pieces else self.ended

    def share(self, end: float) -> float:
        """The share of its pieces that came before `end`."""
        return sum(at <= end for at in self.pieces) / len(self.pieces) if self.pieces else float(self.ended <= end)


class Connection:
    """A client's connection; opened when it is needed, and again after whatever closed it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes) -> Answer:
        """Send a whole request, and read its answer to the end."""
        answer = Answer(time.monotonic())
        try:
            if self._reader is not None and self._reader.at_eof():  # closed by the server since the last answer
                self.close()
            if self._writer is None:
                opening = asyncio.open_connection(self._address.host, self._address.port, limit=MAX_HEAD)
                self._reader, self._writer = await opening
            assert self._reader is not None
            self._writer.write(request)
            keep = await _read(self._reader, answer)
        except BrokenStreamError as error:
            answer.lost, keep = str(error), False
        except (OSError, EOFError):  # IncompleteReadError is an EOFError
            answer.lost, keep = "connection_lost", False
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, asyncio.LimitOverrunError):
            answer.lost, keep = "malformed", False  # whatever stands where something else is meant
        answer.ended = time.monotonic()
        if not keep:
            self.close()
        return answer

    def close(self) -> None:
        """Close it."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def _read(reader: asyncio.StreamReader, answer: Answer) -> bool:
    """Read one answer; whether the connection may be used again."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    answer.status = int(head[0].split(" ")[1])
    body = _body(reader, headers)
    if answer.status == 200:
        await _events(body, answer)
    else:
        answer.body = b"".join([part async for part in body])
        with suppress(ValueError):  # it may be a date, too
            answer.retry_after = float(headers.get("retry-after", 0))
    return headers.get("connection", "").lower() != "close"


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        yield await reader.readexactly(int(headers["content-length"]) if "content-length" in headers else 0)
        return
    while size := int((await reader.readline()).partition(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()


async def _events(body: AsyncIterator[bytes], answer: Answer) -> None:
    held, done = b"", False
    async for part in body:
        now = time.monotonic()
        *lines, held = (held + part).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            done |= data == _DONE
            if data != _DONE and line.startswith(b"data:"):
                _event(data, now, answer)
    if not done:
        raise BrokenStreamError("cut_short")


def _event(data: bytes, now: float, answer: Answer) -> None:
    document = orjson.loads(data)
    if document.get("error") is not None:
        raise BrokenStreamError("error_in_stream")
    if any(choice.get("text") for choice in document.get("choices") or ()):
        answer.pieces.append(now)
    if usage := document.get("usage"):
        answer.tokens, answer.prompt_tokens = int(usage["completion_tokens"]), int(usage["prompt_tokens"])
