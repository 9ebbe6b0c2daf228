"""Call every listed operator with hostile arguments; an operator that dies does not belong on the list.

    python tests/hostile/fuzz_operators.py [--calls 300] [--seed 0] [--only aten.pad]

Operators are called as the serving process calls them: after the inspector's preconditions, through its guards. A wrong
argument may raise, and mostly does. A call that ends the process, or takes longer than it may, is a finding: name the
operator in ``derive_operators.DENIED``, give it a precondition, or guard it.

One process imports torch; its children, forked, make the calls and say in shared memory where they are. A death costs
one child: the next goes on after the call that was fatal. Children are bounded in memory and in time for each call.
"""

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from headway_runtime.prepare import operators, preconditions
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program import functions

from tests.hostile.fuzz_arguments import Arguments

SECONDS = 3.0
"""CPU time of one call."""
PATIENCE = 120.0
"""Seconds by the clock without progress: a machine may be busy with other things."""
MEMORY = 6 << 30
MAX_DEATHS = 3
"""Of one operator: after that the next one is tried."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``call`` is the number of the call: with the seed it gives the same arguments again."""

    operator: str
    call: int
    fate: str

    def __str__(self) -> str:
        return f"{self.operator} call {self.call}: {self.fate}"


def fuzz(names: Sequence[str], *, calls: int, seed: int, seconds: float | None = None) -> Iterator[Finding]:
    """Findings, as they are met. ``seconds``: stop after so much CPU time of children."""
    progress = mmap.mmap(-1, 16)
    at, deaths, started = 0, 0, _children_seconds()
    total = len(names) * calls
    while at < total and (seconds is None or _children_seconds() - started < seconds):
        fate = _run(lambda start=at: _calls(names, calls, seed, start, progress, seconds), progress)
        (reached,) = struct.unpack_from("<q", progress)
        if fate is None:
            return
        operator, call = names[reached // calls], reached % calls
        yield Finding(operator, call, fate)
        deaths = deaths + 1 if reached // calls == at // calls else 1
        at = reached + 1
        if deaths >= MAX_DEATHS:
            at, deaths = (reached // calls + 1) * calls, 0


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(body: Callable[[], None], progress: mmap.mmap) -> str | None:
    """Run ``body`` in a child: how it died, or None."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            body()
            code = 0
        finally:
            os._exit(code)
    seen, since = b"", time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if progress[:8] != seen:
            seen, since = progress[:8], time.monotonic()
        if time.monotonic() - since > PATIENCE:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"no end after {PATIENCE} s"
        time.sleep(0.005)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"more than {SECONDS} s of CPU time" if name == "SIGPROF" else name
    return f"exit {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else None


def _calls(
    names: Sequence[str], calls: int, seed: int, start: int, progress: mmap.mmap, seconds: float | None
) -> None:
    """The child: all calls from number ``start`` on."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    arguments = Arguments(random.Random())
    for number in range(start, len(names) * calls):
        struct.pack_into("<q", progress, 0, number)
        if seconds is not None and time.process_time() > seconds:
            return
        one(names[number // calls], f"{seed}{names[number // calls]}{number % calls}", arguments)


def one(name: str, seed: str, arguments: Arguments) -> object:
    """One call; what it raises is fine and is returned."""
    signature = operators.signature(name)
    assert signature is not None
    arguments.seed(seed)
    args, named, values = arguments.of(signature)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        preconditions.check(name, {k: {"str": v} if isinstance(v, str) else v for k, v in values.items()})
        with torch.inference_mode():
            return functions.resolve(name)(*args, **named)
    except (Refusal, Exception) as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--show", type=int, help="print the arguments of this call of the only operator, and call it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = sorted(n for n in operators.names() if options.only in n)
    if options.show is not None:
        signature = operators.signature(names[0])
        assert signature is not None
        arguments = Arguments(random.Random())
        arguments.seed(f"{options.seed}{names[0]}{options.show}")
        print(names[0], *arguments.of(signature)[:2], flush=True)
        print(one(names[0], f"{options.seed}{names[0]}{options.show}", arguments))
        return 0
    findings = 0
    for finding in fuzz(names, calls=options.calls, seed=options.seed):
        findings += 1
        print(finding, flush=True)
    print(f"{len(names)} operators, {options.calls} calls each: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
