"""Servers that are up together and take turns."""

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway_api.types import Precision

from tests.bench.peers import install
from tests.bench.peers.client import Exchange, RefusedError, WrongAnswerError
from tests.bench.peers.results import Result, of_round, settings_text
from tests.bench.peers.running import Round, Server, StartError, started
from tests.bench.peers.workloads import Workload

FAILURES = (install.InstallError, StartError, RefusedError, WrongAnswerError, OSError)


@dataclass(frozen=True, slots=True)
class Contender:
    """A started server, and where its figures go."""

    result: Result
    server: Server
    exchanges: Sequence[Exchange]


Drive = Callable[[Contender, int], Round]  # of a contender, with the number of the round as seed


def closed(connections: int, seconds: float) -> Drive:
    """As many requests as `connections` get through in `seconds`."""
    return lambda c, seed: c.server.closed(c.exchanges, connections, seconds, seed=seed)


def open_loop(rate: float, connections: int, seconds: float) -> Drive:
    """`rate` requests a second, over at most `connections` at a time."""
    return lambda c, seed: c.server.open(c.exchanges, connections, rate, seconds, seed=seed)


@contextmanager
def arena(results: Sequence[Result], workload: Workload, warm: Drive) -> Iterator[list[Contender]]:
    """Start every server and warm it. One that fails is out, with the reason in its result."""
    with ExitStack() as stack:
        contenders = []
        for result in results:
            say(f"starting {result.peer.name}: {settings_text(result.settings)}")
            try:
                contender = stack.enter_context(_up(result, workload))
                warm(contender, -1)
                contenders.append(contender)
            except FAILURES as error:
                _out(result, error)
        yield contenders
        for contender in contenders:
            with contextlib.suppress(OSError):
                contender.result.resident = contender.server.resident()


def take_turns(
    contenders: Sequence[Contender], name: str, drive: Drive, rounds: int, *, may_refuse: bool = False
) -> None:
    """`rounds` of `drive` for each, in turn; each round begins with another one. What a server spends between its own
    drives is noted as idle.
    """
    began = time.monotonic()
    idle = {id(c): -c.server.cpu() for c in contenders}
    busy = dict.fromkeys(idle, 0.0)
    for number in range(rounds):
        turn = number % max(1, len(contenders))
        for contender in [*contenders[turn:], *contenders[:turn]]:
            if contender.result.reason:
                continue
            started_at = time.monotonic()
            try:
                found = of_round(drive(contender, number), may_refuse=may_refuse)
            except FAILURES as error:
                _out(contender.result, error)
                continue
            busy[id(contender)] += time.monotonic() - started_at
            contender.result.rounds.setdefault(name, []).append(found)
            say(
                f"  {name} {contender.result.peer.name}: {found['cpu_us']:.1f} us of CPU, {found['per_second']:.0f}/s,"
                f" p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms"
            )
    elapsed = time.monotonic() - began
    for contender in contenders:
        driven = sum(r["cpu_s"] for r in contender.result.rounds.get(name, []))
        left = elapsed - busy[id(contender)]
        if len(contenders) > 1 and left > 0:
            contender.result.idle_cpu = max(0.0, idle[id(contender)] + contender.server.cpu() - driven) / left


@contextmanager
def _up(result: Result, workload: Workload) -> Iterator[Contender]:
    exchanges = workload.exchanges(result.peer.form, Precision(result.settings.get("precision", Precision.EXPORTED)))
    with (
        tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder,
        started(result.peer, result.settings, workload, Path(folder), exchanges[0]) as server,
    ):
        if result.peer.requirements:
            python = install.FOLDER / result.peer.home / "bin/python"
            result.versions = install.versions(python, result.peer.packages)
        yield Contender(result, server, exchanges)


def _out(result: Result, error: Exception) -> None:
    result.reason = f"{type(error).__name__}: {error}"
    say(f"  {result.peer.name}: {result.reason}")


def end_in_order() -> None:
    """Let SIGTERM end this process as an exception does, so that servers end and folders go."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def say(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)
