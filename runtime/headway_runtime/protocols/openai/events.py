"""A streamed answer: each piece becomes an event (Server-Sent Events, WHATWG HTML 9.2) with one chunk of OpenAI's.

What does not change from token to token is written once: a piece of plain text costs one escape and three joins.
"""

from typing import Any

import orjson

from headway_runtime.errors import RequestError
from headway_runtime.generation.values import Piece, Usage
from headway_runtime.protocols.openai.calls import Calls
from headway_runtime.protocols.openai.errors import error_body
from headway_runtime.protocols.openai.identity import Identity, usage_of
from headway_runtime.protocols.openai.logprobs import TokenTexts, of_chat, of_completion
from headway_runtime.protocols.openai.messages import calls_in, delta_document, finish_of
from headway_runtime.protocols.openai.prompts import Prompt
from headway_runtime.protocols.openai.question import Question

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
_END = b"}\n\n"


class Events:
    """Of one request."""

    def __init__(self, identity: Identity, question: Question, prompts: list[Prompt], texts: TokenTexts) -> None:
        self._question, self._prompts, self._texts = question, prompts, texts
        self._chat = question.is_chat
        self._told = question.generate.logprobs is not None
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        self._begin = b"data: " + orjson.dumps(identity.document(kind))[:-1]
        self._usage = b',"usage":null' if question.include_usage else b""
        count = len(prompts) * question.generate.n
        opening = b'"delta":{"content":' if self._chat else b'"text":'
        closing = b"}" if self._chat else b""
        self._heads = [b'%b,"choices":[{"index":%d,%b' % (self._begin, at, opening) for at in range(count)]
        self._tail = closing + b',"logprobs":null,"finish_reason":null}]' + self._usage + _END
        self._calls: list[Calls | None] = [calls_in(question) for _ in range(count)] if self._chat else []
        self._plain = not self._told and all(each is None for each in self._calls)
        self._offsets = [len(prompts[at // question.generate.n].text) if question.echo else 0 for at in range(count)]

    def opening(self) -> bytes:
        """Before the first piece: whose message it is; or the prompt, where it is part of the text."""
        if self._chat:
            content = None if self._calls[0] is not None else ""
            delta = {"role": "assistant", "content": content}
            return b"".join(self._chunk(at, {"delta": delta}) for at in range(len(self._heads)))
        if not self._question.echo:
            return b""
        texts = [prompt.text for prompt in self._prompts for _ in range(self._question.generate.n)]
        return b"".join(self._chunk(at, {"text": text}) for at, text in enumerate(texts))

    def piece(self, choice: int, piece: Piece) -> bytes:
        """What a piece adds; empty: nothing that could be told yet."""
        if self._plain and piece.finish is None:
            return self._heads[choice] + orjson.dumps(piece.text) + self._tail if piece.text else b""
        if self._chat:
            return self._message(choice, piece)
        if not (piece.text or piece.logprobs or piece.finish):
            return b""
        logprobs = None
        if self._told:
            logprobs, self._offsets[choice] = of_completion(piece.logprobs, self._texts, self._offsets[choice])
        finish = None if piece.finish is None else piece.finish.value
        return self._chunk(choice, {"text": piece.text}, logprobs, finish)

    def end(self, usages: list[Usage]) -> bytes:
        """After the last piece."""
        if not self._question.include_usage:
            return DONE
        return self._begin + b',"choices":[],"usage":' + orjson.dumps(usage_of(usages)) + _END + DONE

    def error(self, error: RequestError) -> bytes:
        """In place of what is missing. No `[DONE]` follows: the answer is not whole."""
        return b"data: " + error_body(error) + b"\n\n"

    def _message(self, choice: int, piece: Piece) -> bytes:
        calls = self._calls[choice]
        if calls is None:
            deltas: list[dict[str, Any]] = [{"content": piece.text}] if piece.text else []
        else:
            found = calls.push(piece.text) if piece.text else []
            found += calls.finish() if piece.finish is not None else []
            deltas = [delta_document(each) for each in found]
        logprobs = of_chat(piece.logprobs, self._texts) if self._told and piece.logprobs else None
        if logprobs is not None and not deltas:
            deltas = [{}]
        parts = []
        for at, delta in enumerate(deltas):
            parts.append(self._chunk(choice, {"delta": delta}, logprobs if at == 0 else None))
        if piece.finish is not None:
            finish = finish_of(piece.finish, self._question.calls, calls)
            parts.append(self._chunk(choice, {"delta": {}}, None, finish))
        return b"".join(parts)

    def _chunk(self, choice: int, added: dict[str, Any], logprobs: Any = None, finish: str | None = None) -> bytes:
        document = {"index": choice, **added, "logprobs": logprobs, "finish_reason": finish}
        return self._begin + b',"choices":[' + orjson.dumps(document) + b"]" + self._usage + _END
