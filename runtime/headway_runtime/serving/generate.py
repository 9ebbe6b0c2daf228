"""From a checked request for text to its stream: is it admitted, and to whom does it belong?

Lives on the event loop. Protocols read `facts`, make a `Generate` of them, and `start` it; what comes back comes by the
`Stream` that they gave. How a request counts (`begin`, `end`) is as for every other.
"""

import time
from dataclasses import replace

from headway_runtime.errors import InvalidRequestError, RequestError, TooLargeError
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.sequence import TOKEN_BYTES
from headway_runtime.generation.values import Generate, Piece, Stream, Usage
from headway_runtime.generation_metrics import GenerationMetrics
from headway_runtime.knobs import Settings
from headway_runtime.pod import Generator
from headway_runtime.serving.account import Account


class GenerateService(Account):
    """What every protocol calls that answers with text."""

    @property
    def facts(self) -> Facts:
        """What is served. Raises NotServingError, and InvalidRequestError where no text is generated."""
        return self._pod.generating()[0].facts

    def start(self, generate: Generate, stream: Stream) -> int:
        """Put a request in line; returns its number, for `cancel`.

        Raises RequestError: NotServingError; InvalidRequestError or TooLargeError for what can never be answered here;
        QueueFullError or OverloadedError for what cannot be now.
        """
        generator, settings = self._pod.generating()
        check(generate, generator.facts, settings)
        metrics = self._pod.metrics.generation
        if metrics is not None:
            watch = _Watch(metrics, stream, generate.n)
            stream = replace(stream, pieces=watch.pieces, ended=watch.ended)
        return generator.engine.submit(generate, stream)

    def cancel(self, number: int) -> None:
        """Nobody waits for it any more: `ended` of its stream gets None. Whatever has ended already is left alone."""
        model = self._pod.model
        if isinstance(model, Generator):
            model.engine.cancel(number)


class _Watch:
    """Stands between the engine and a stream, for what is measured of it. Lets nothing through after the end: pieces of
    a step may be on their way when a request is cancelled.
    """

    __slots__ = ("_latest", "_metrics", "_over", "_stream", "_unfinished")

    def __init__(self, metrics: GenerationMetrics, stream: Stream, answers: int) -> None:
        self._metrics = metrics
        self._stream = stream
        self._unfinished = answers
        self._over = False
        self._latest: dict[int, float] = {}  # time.monotonic() of the latest piece with tokens, by answer

    def pieces(self, pieces: tuple[Piece, ...]) -> None:
        if self._over:
            return
        now = time.monotonic()
        for piece in pieces:
            if piece.tokens:
                before = self._latest.get(piece.index)
                if before is not None:
                    self._metrics.between_tokens.observe(now - before)
                self._latest[piece.index] = now
            if piece.finish is not None:
                self._metrics.ended(piece.finish.value)
                self._unfinished -= 1
        self._stream.pieces(pieces)

    def ended(self, outcome: Usage | RequestError | None) -> None:
        self._over = True
        if self._unfinished:
            self._metrics.ended("cancelled" if outcome is None else "error", self._unfinished)
        self._stream.ended(outcome)


def check(generate: Generate, facts: Facts, settings: Settings) -> None:
    """What the engine does not look at. Raises InvalidRequestError for tokens that the model does not have,
    TooLargeError for what could never be admitted.
    """
    outside = next((token for token in generate.prompt if not 0 <= token < facts.vocabulary), None)
    if outside is not None:
        raise InvalidRequestError(f"token {outside} of the prompt is not from 0 to {facts.vocabulary - 1}")
    limits = settings.limits
    if generate.n > limits.capacity:
        raise TooLargeError(
            f"{generate.n} answers; at most {limits.capacity} are ever admitted (spec.batching.queue.capacity)"
        )
    size = generate.n * len(generate.prompt) * TOKEN_BYTES
    if size > limits.bytes:
        raise TooLargeError(
            f"{size} bytes of prompts; at most {limits.bytes} are ever admitted (spec.batching.queue.bytes)"
        )
