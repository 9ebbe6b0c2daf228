"""Answers that were given before, and one computation for equal requests that come at the same time.

Keyed by a strong hash of everything a client wrote (`key_of`). Of equal requests in flight one leads and is computed,
the others follow and share its reply. Nobody is worse off for following: who would have to start noticeably earlier
than the leader, or is preferred to it, is computed on its own; when the leader's client goes, the computation goes on
for those who follow; when the leader fails, the next takes over with its own deadline. A program that has failed twice
on these inputs has failed for all who wait. Errors are not kept.

Lives on the event loop, except `gone` of the calls that it makes.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from struct import pack
from typing import Protocol

import torch

from headway_runtime.errors import InvalidRequestError, ProgramFailedError, RequestError
from headway_runtime.logs import log
from headway_runtime.serving.values import BytesArray, Call, Given, Output, Reply, Value

ENTRY_BYTES = 1024  # what an entry costs beside its tensors: key, names, objects
TRIES = 2  # times that a program may fail on the same inputs before it has failed for all
SLACK = 0.1  # of the time to its deadline, by which who follows may start late: equal timeouts do not begin in order

Result = Reply | RequestError | None
Compute = Callable[[Call], None]
"""Computes the reply for a call, by one call of its `done`; or raises RequestError."""


class Observer(Protocol):
    """Who counts (`metrics.Metrics`)."""

    def cached(self, outcome: str) -> None:
        """A request was a `hit`, a `follow` or a `miss`."""

    def cache_holds(self, *, size: int, entries: int, evicted: int) -> None:
        """Bytes and number of the answers that are kept now, and how many just made room."""


class ResponseCache:
    """`size`: bytes of answers that are kept; 0 turns it off, also the sharing of computations."""

    def __init__(self, size: int, observer: Observer) -> None:
        self.enabled = size > 0  # whether to ask it at all
        self._size = size
        self._observer = observer
        self._used = 0
        self._entries: OrderedDict[bytes, tuple[Reply, int]] = OrderedDict()  # the least recently used first
        self._flights: dict[bytes, _Flight] = {}
        self._generation = 0

    def resize(self, size: int) -> None:
        """A new bound, in bytes; what no longer fits is dropped, the least recently used first."""
        self.enabled = size > 0
        self._size = size
        self._shrink()

    def clear(self) -> None:
        """Forget all answers, also those that are being computed: what is an answer has changed."""
        self._generation += 1
        self._entries.clear()
        self._used = 0
        self._shrink()

    def answer(self, key: bytes, call: Call, compute: Compute) -> None:
        """Answer `call` from what is kept, from a computation in flight, or by `compute`. May raise RequestError."""
        known = self._entries.get(key)
        if known is not None:
            self._entries.move_to_end(key)
            self._observer.cached("hit")
            call.done(known[0])
            return
        flight = self._flights.get(key)
        if flight is not None and flight.serves(call):
            self._observer.cached("follow")
            flight.followers.append(call)
            return
        self._observer.cached("miss")
        if flight is None:
            flight = self._flights[key] = _Flight(call, compute)
            self._fly(key, flight)
        else:
            compute(replace(call, done=self._keeping(key, call)))

    def _fly(self, key: bytes, flight: "_Flight") -> None:
        """Compute for the present leader; while that ends at once, and with an error, for the next."""
        while True:
            at_once = self._start(key, flight)
            if not at_once or self._landed(key, flight, at_once[0]):
                return

    def _start(self, key: bytes, flight: "_Flight") -> list[Result]:
        """Begin the computation; what came of it, if that is known at once."""
        at_once: list[Result] = []
        returned = False

        def done(result: Result) -> None:
            if not returned:
                at_once.append(result)
            elif not self._landed(key, flight, result):
                self._fly(key, flight)

        flight.generation = self._generation
        try:
            flight.compute(Call(flight.leader.deadline, flight.gone, done, flight.leader.priority))
        except RequestError as error:
            at_once.append(error)
        except Exception as error:
            log("request_failed", level="error", error=error)
            at_once.append(RequestError(f"internal error: {type(error).__name__}; the pod's log has more"))
        returned = True
        return at_once

    def _landed(self, key: bytes, flight: "_Flight", result: Result) -> bool:
        """Tell whom this result concerns. False when others still wait: one of them leads now."""
        flight.failures += isinstance(result, ProgramFailedError | InvalidRequestError)  # as it will be for the others
        if isinstance(result, Reply) or flight.failures >= TRIES:
            del self._flights[key]
            if isinstance(result, Reply) and flight.generation == self._generation:
                self._keep(key, result)
            for call in (flight.leader, *flight.followers):
                _tell(call, None if call.gone() else result)
            return True
        _tell(flight.leader, result)
        while flight.followers:
            flight.leader = flight.followers.popleft()
            if not flight.leader.gone():
                return False
            _tell(flight.leader, None)
        del self._flights[key]
        return True

    def _keeping(self, key: bytes, call: Call) -> Callable[[Result], None]:
        generation = self._generation

        def done(result: Result) -> None:
            if isinstance(result, Reply) and generation == self._generation:
                self._keep(key, result)
            call.done(result)

        return done

    def _keep(self, key: bytes, reply: Reply) -> None:
        size = ENTRY_BYTES + sum(_bytes(output.value) for output in reply.outputs)
        if size > self._size or key in self._entries:
            return
        outputs = tuple(Output(output.name, output.datatype, _own(output.value)) for output in reply.outputs)
        self._entries[key] = Reply(outputs, cached=True, parameters=reply.parameters), size
        self._used += size
        self._shrink()

    def _shrink(self) -> None:
        evicted = 0
        while self._used > self._size:
            _, (_, size) = self._entries.popitem(last=False)
            self._used -= size
            evicted += 1
        self._observer.cache_holds(size=self._used, entries=len(self._entries), evicted=evicted)


class _Flight:
    """One computation, and who waits for it."""

    __slots__ = ("compute", "failures", "followers", "generation", "leader")

    def __init__(self, leader: Call, compute: Compute) -> None:
        self.leader = leader
        self.compute = compute
        self.followers: deque[Call] = deque()
        self.failures = 0
        self.generation = 0

    def serves(self, call: Call) -> bool:
        """Whether following is no worse for `call` than a computation of its own."""
        sooner = self.leader.deadline - call.deadline
        on_time = sooner <= 0 or sooner <= SLACK * (call.deadline - time.monotonic())
        return on_time and call.priority <= self.leader.priority

    def gone(self) -> bool:
        """Whether nobody waits any more. Called from any thread."""
        return self.leader.gone() and all(call.gone() for call in tuple(self.followers))


def key_of(given: Given) -> bytes:
    """Equal for requests with equal inputs (names, datatypes, shapes, bytes) that want the same; else different."""
    state = blake2b(digest_size=32)
    state.update(repr((given.outputs, sorted(given.classes.items()), len(given.inputs))).encode())
    for name in sorted(given.inputs):
        value = given.inputs[name]
        if isinstance(value, BytesArray):
            state.update(repr((name, "BYTES", value.shape)).encode())
            for item in value.items:
                state.update(pack("<Q", len(item)))
                state.update(item)
        else:
            state.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            flat = value.reshape(-1)
            if flat.stride(0) != 1:  # also of a single element, which torch calls contiguous with any stride
                flat = flat.new_empty(flat.shape).copy_(flat)
            state.update(flat.view(torch.uint8).numpy())
    return state.digest()


def _bytes(value: Value) -> int:
    if isinstance(value, BytesArray):
        return sum(64 + len(item) for item in value.items)
    return int(value.numel() * value.itemsize)


def _own(value: Value) -> Value:
    """The same in memory of its own: a row that is kept must not keep the whole run."""
    if isinstance(value, BytesArray) or value.untyped_storage().nbytes() == _bytes(value):
        return value
    return value.clone(memory_format=torch.contiguous_format)


def _tell(call: Call, result: Result) -> None:
    """One call's trouble with its reply is not the others'."""
    try:
        call.done(result)
    except Exception as error:
        log("answer_failed", level="error", error=error)
