"""Clients that let a decoder write, one stream after the other, and keep what became of each."""

import threading
import time
from dataclasses import dataclass, field
from typing import Self

import openai

LONGEST = 60.0  # seconds of one stream


@dataclass(frozen=True, slots=True)
class Told:
    """One stream: its text, how it ended, which revision wrote it, and what went wrong."""

    text: str
    finish: str | None
    revision: str
    error: str | None = None
    pieces: int = 0
    spread: float = 0.0  # seconds between the first and the last piece


def client(url: str, model: str) -> openai.OpenAI:
    """OpenAI's own client, that repeats nothing. `url` is the router's, by whatever name."""
    return openai.OpenAI(base_url=f"{url}/models/{model}/v1", api_key="none", max_retries=0, timeout=LONGEST)


def stream(url: str, model: str, prompt: str, tokens: int) -> Told:
    """One completion, streamed to its end."""
    text, finish, revision, pieces, times = "", None, "", 0, []
    try:
        with client(url, model) as asked:
            raw = asked.completions.with_raw_response.create(
                model=model,
                prompt=prompt,
                max_tokens=tokens,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            revision = raw.headers["x-headway-revision"]
            for chunk in raw.parse():
                for choice in chunk.choices:
                    text, finish, pieces = text + choice.text, choice.finish_reason or finish, pieces + 1
                    times.append(time.monotonic())
    except Exception as error:
        return Told(text, finish, revision, f"{type(error).__name__}: {error}", pieces)
    return Told(text, finish, revision, None, pieces, times[-1] - times[0] if times else 0.0)


@dataclass
class Talk:
    """`clients` streams at the same time, as a context: a new one begins when one ends."""

    url: str
    model: str
    tokens: int
    clients: int = 4
    told: list[Told] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(at,)) for at in range(self.clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _talk(self, at: int) -> None:
        number = 0
        while not self._ending.is_set():
            self.told.append(stream(self.url, self.model, f"client {at} story {number}", self.tokens))
            number += 1

    @property
    def broken(self) -> list[Told]:
        """The streams that did not come to their end."""
        return [told for told in self.told if told.error is not None or told.finish is None]
