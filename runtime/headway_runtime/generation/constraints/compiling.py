"""One grammar, compiled within bounds of time and memory.

Nobody can end a thread. Should a grammar that no bound foresaw be compiled for too long, it is left behind; while it
goes on, no other is begun, so that at most one core is lost to it.
"""

import re
import threading
from collections.abc import Callable

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from headway_runtime.errors import InvalidRequestError, QueueFullError
from headway_runtime.generation.constraints.grammar import grammar
from headway_runtime.generation.values import Constraint

STACK = 64 << 20
"""Bytes, of which only what is used is taken: chains of rules are followed by recursion."""

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,
    step_lexer_fuel=50_000,
    step_max_items=10_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
)
"""A fifth of the library's own, with which one step may take a second and 200 MB."""

SECONDS = 10.0
"""After which one is left behind. Most take a millisecond."""


class Compiler:
    """Grammars for one vocabulary, from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left_behind: threading.Thread | None = None

    def compiled(self, constraint: Constraint, tokenizer: LLTokenizer) -> LLMatcher:
        """At its beginning, the first mask computed: what takes long is done here.

        Raises InvalidRequestError; QueueFullError while one that was left behind goes on.
        """
        text = grammar(constraint)
        found: list[LLMatcher] = []
        thread = self._started(lambda: found.append(_compiled(text, tokenizer)))
        thread.join(SECONDS)
        if not found:
            self._left_behind = thread
            raise InvalidRequestError(f"the {constraint.kind} of the request took more than {SECONDS:g} s to compile")
        if found[0].is_error():
            raise InvalidRequestError(f"the {constraint.kind} of the request cannot be used: {why(found[0])}")
        return found[0]

    def _started(self, work: Callable[[], object]) -> threading.Thread:
        """A thread with a stack of its own size."""
        with self._lock:
            if self._left_behind is not None and self._left_behind.is_alive():
                raise QueueFullError("another request's constraint takes all the time there is", retry_after=30)
            before = threading.stack_size(STACK)
            try:
                thread = threading.Thread(target=work, name="headway-constraint", daemon=True)
                thread.start()
            finally:
                threading.stack_size(before)
        return thread


def why(matcher: LLMatcher) -> str:
    """What the library says, without its state."""
    told = re.split("<state>|<backtrace>", str(matcher.get_error()))[0]
    return " ".join(told.split())[:300]


def _compiled(text: str, tokenizer: LLTokenizer) -> LLMatcher:
    matcher = LLMatcher(tokenizer, text, log_level=0, limits=LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher
