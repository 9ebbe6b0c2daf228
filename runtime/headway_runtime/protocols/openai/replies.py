"""A whole answer: pieces are kept until the last, then written as one document."""

from typing import Any

import orjson

from headway_runtime.generation.values import FinishReason, Piece, TokenLogprob, Usage
from headway_runtime.protocols.openai.callscan import Delta
from headway_runtime.protocols.openai.identity import Identity, usage_of
from headway_runtime.protocols.openai.logprobs import TokenTexts, of_chat, of_completion
from headway_runtime.protocols.openai.messages import calls_in, finish_of, message_document
from headway_runtime.protocols.openai.prompts import Prompt
from headway_runtime.protocols.openai.question import Question

_MANY = 2**12  # logarithms, which take some milliseconds to write


class _Choice:
    __slots__ = ("finish", "logprobs", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish = FinishReason.LENGTH


class Reply:
    """Of one request. Choices of the first prompt come first."""

    def __init__(self, identity: Identity, question: Question, prompts: list[Prompt], texts: TokenTexts) -> None:
        self._identity, self._question, self._prompts, self._texts = identity, question, prompts, texts
        self._choices = [_Choice() for _ in range(len(prompts) * question.generate.n)]

    @property
    def is_long(self) -> bool:
        """Whether writing it would keep other requests waiting."""
        entries = 1 + (self._question.generate.logprobs or 0)
        return sum(len(choice.logprobs) for choice in self._choices) * entries > _MANY

    def add(self, choice: int, piece: Piece) -> None:
        """One more piece of a choice."""
        found = self._choices[choice]
        found.texts.append(piece.text)
        found.logprobs += piece.logprobs
        found.finish = piece.finish or found.finish

    def document(self, usages: list[Usage]) -> bytes:
        """The answer; `usages` of each prompt."""
        chat = self._question.is_chat
        write = self._message if chat else self._completion
        return orjson.dumps(
            {
                **self._identity.document("chat.completion" if chat else "text_completion"),
                "choices": [write(at, choice, usages) for at, choice in enumerate(self._choices)],
                "usage": usage_of(usages),
            }
        )

    def _message(self, at: int, choice: _Choice, _: list[Usage]) -> dict[str, Any]:
        text, calls = "".join(choice.texts), calls_in(self._question)
        deltas = [Delta(content=text)] if calls is None else [*calls.push(text), *calls.finish()]
        told = self._question.generate.logprobs is not None
        return {
            "index": at,
            "message": message_document(deltas),
            "logprobs": of_chat(choice.logprobs, self._texts) if told else None,
            "finish_reason": finish_of(choice.finish, self._question.calls, calls),
        }

    def _completion(self, at: int, choice: _Choice, usages: list[Usage]) -> dict[str, Any]:
        number = at // self._question.generate.n
        prompt = self._prompts[number]
        text = "".join(choice.texts)
        logprobs = None
        if self._question.generate.logprobs is not None:
            first = None
            all_of_them = choice.logprobs
            if self._question.echo:
                first = prompt.generate.prompt[0]
                all_of_them = [each for each in usages[number].prompt_logprobs if each is not None] + all_of_them
            logprobs, _ = of_completion(all_of_them, self._texts, 0, unpredicted=first)
        return {
            "index": at,
            "text": prompt.text + text if self._question.echo else text,
            "logprobs": logprobs,
            "finish_reason": choice.finish.value,
        }
