"""One client for every server: `/v1/completions` over loopback, so many requests at a time, greedy, whole answers.

The client's own CPU time is nobody's: what is counted is the server's.
"""

import http.client
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.generation.workload import Question

PATIENCE = 600.0  # seconds for one answer


class WrongAnswerError(Exception):
    """The server did not do what it was asked to; the message says what it did."""


@dataclass(slots=True)
class Answered:
    """What came of a drive: tokens of prompts and of answers as the server counts them; texts by question."""

    prompt_tokens: int = 0
    tokens: int = 0
    texts: dict[int, str] = field(default_factory=dict)


def body(question: Question, more: Mapping[str, object], *, stream: bool) -> bytes:
    """The request: tokens in, greedy, end tokens ignored."""
    asked = {
        "prompt": list(question.prompt),
        "max_tokens": question.answer,
        "temperature": 0,
        "ignore_eos": True,
        **more,
    }
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(asked).encode()


def drive(
    port: int, questions: Sequence[Question], slots: int, more: Mapping[str, object], *, stream: bool
) -> Answered:
    """Ask all, `slots` at a time. Raises WrongAnswerError, OSError."""
    bodies = [body(question, more, stream=stream) for question in questions]
    answered, lock, errors = Answered(), threading.Lock(), list[Exception]()
    numbers = iter(range(len(bodies)))

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            while not errors:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                text, prompt_tokens, tokens = _ask(connection, bodies[number], _streamed if stream else _whole)
                if tokens != questions[number].answer:
                    raise WrongAnswerError(f"{tokens} tokens where {questions[number].answer} were asked for")
                with lock:
                    answered.prompt_tokens += prompt_tokens
                    answered.tokens += tokens
                    answered.texts[number] = text
        except Exception as error:  # for the caller's thread
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(min(slots, len(bodies)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answered


Read = Callable[[http.client.HTTPResponse], tuple[str, int, int]]


def _ask(connection: http.client.HTTPConnection, body: bytes, read: Read) -> tuple[str, int, int]:
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise WrongAnswerError(f"{response.status}: {response.read()[:300]!r}")
    return read(response)


def _whole(response: http.client.HTTPResponse) -> tuple[str, int, int]:
    found = json.loads(response.read())
    usage = found["usage"]
    return found["choices"][0]["text"], usage["prompt_tokens"], usage["completion_tokens"]


def _streamed(response: http.client.HTTPResponse) -> tuple[str, int, int]:
    text, usage = "", {"prompt_tokens": 0, "completion_tokens": 0}
    for line in response:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            text += "".join(choice["text"] for choice in event["choices"])
            usage = event.get("usage") or usage
    return text, usage["prompt_tokens"], usage["completion_tokens"]
