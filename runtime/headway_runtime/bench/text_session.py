"""A whole measurement of a text model: the longest request, then more and more clients."""

import asyncio
import os

from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.machine import CLIENT_BUSY, SHARED, machine
from headway_runtime.bench.plan import Plan, Say
from headway_runtime.bench.prompts import ANSWER, PROMPT, Prompts, sizes_of
from headway_runtime.bench.streamed import Answer, Connection
from headway_runtime.bench.streams import closed_streams
from headway_runtime.bench.target import Target
from headway_runtime.bench.text_results import TextMeasurement, TextResults

CONNECTIONS = (1, 4, 16)
LONGEST = 300.0  # seconds for the longest request, when nothing else is asked


class TextSession:
    """Measures one target. Use once."""

    def __init__(self, target: Target, plan: Plan, say: Say) -> None:
        _check(plan)
        self._target, self._plan, self._say = target, plan, say
        report = target.report()
        self._room = None if report is None else report.generation
        sizes = sizes_of(plan.sizes, None if self._room is None else self._room.max_length)
        self._prompts = Prompts(target.url, target.model.name, sizes)
        self._results = TextResults(
            model=target.model.name,
            url=target.url,
            sizes={name: str(size) for name, size in sizes.items()},
            machine=machine(),
            room=self._room,
            precision=None if report is None else report.precision,
            warnings=list(target.warnings),
        )

    def run(self) -> TextResults:
        """Everything, in order. Raises BenchError."""
        results, plan = self._results, self._plan
        self._say("the longest request")
        self._try()
        requests = self._prompts.requests(plan.seed)
        for connections in plan.connections or CONNECTIONS:
            self._say(f"clients, {connections}: {plan.seconds:.0f} s")
            before = self._target.cpu_seconds()
            streams = closed_streams(self._target.address, requests, connections=connections, seconds=plan.seconds)
            after = self._target.cpu_seconds()
            used = None if before is None or after is None else after - before
            results.measurements.append(TextMeasurement.of(connections, streams, used))
        if not any(each.tokens for each in results.measurements):
            raise BenchError(f"no whole answer in {plan.seconds:g} s: {results.measurements[-1].errors}")
        report = self._target.report()
        if report is not None and report.generation is not None:
            results.room = report.generation
        self._warn()
        return results

    def _try(self) -> None:
        answer = asyncio.run(_once(self._target, self._prompts.longest()))
        if answer.good:
            return
        sizes = self._prompts.sizes
        raise BenchError(
            f"the longest request ({sizes[PROMPT].most} words, and an answer of {sizes[ANSWER].most} tokens) is "
            f"answered {answer.status or answer.lost}: {answer.body[:300].decode(errors='replace')}; "
            f"give --sizes {PROMPT}=… and --sizes {ANSWER}=…"
        )

    def _warn(self) -> None:
        busiest = max(self._results.measurements, key=lambda each: each.client_share)
        if busiest.client_share > CLIENT_BUSY:
            self._results.warnings.append(
                f"this client used {busiest.client_share:.0%} of a processor ({busiest.label}): its own speed is "
                "measured too; run it on another machine, or with fewer clients"
            )
        if self._target.pid is not None and (os.cpu_count() or 1) <= 2:
            self._results.warnings.append(SHARED)


async def _once(target: Target, request: bytes) -> Answer:
    connection = Connection(target.address)
    try:
        async with asyncio.timeout(LONGEST):
            return await connection.ask(request)
    except TimeoutError:
        raise BenchError(f"the longest request was not answered in {LONGEST:.0f} s") from None
    finally:
        connection.close()


def _check(plan: Plan) -> None:
    """What does not apply to text is refused by its option. Raises BenchError."""
    others = {
        "--rate": plan.rates,
        "--latency-target": plan.latency_target,
        "--range": plan.ranges,
        "--samples": plan.samples,
        "--binary": plan.binary,
    }
    for option, given in others.items():
        if given:
            raise BenchError(f"{option} is for models that compute tensors, and this one generates text; leave it out")
