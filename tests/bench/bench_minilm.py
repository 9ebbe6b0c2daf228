"""MiniLM with sentences of 8 to 128 tokens (mean 30): how long users wait, and what a request costs. By hand:

    python tests/bench/bench_minilm.py [--figure latency|cost] [--precision Exported BFloat16 Int8] [--rounds 5]

*latency*: at a third of saturation against calling the program directly with the same inputs; at 80 per cent; and past
saturation, where the excess must be refused at once and the rest answered as if it were not there. *cost*: requests per
second of processor time against an offline run that has all requests beforehand and sorts them by length.

The pod has one processor (or `--processors`), the client another (where there is one more); the direct calls and the
offline run have the pod's processors, and as many threads, while the pod has nothing to do. Rounds alternate; medians
are told. Of several precisions each has a pod, with direct calls and offline runs of the same precision. With more than
one thread, set `OMP_WAIT_POLICY=passive`: the client's threads must not spin beside the pod.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

import torch
from headway_api.types import Precision
from headway_runtime.bench.connection import Address
from headway_runtime.bench.inputs import Request
from headway_runtime.bench.load import closed_loop, open_loop
from headway_runtime.bench.samples import Samples
from headway_runtime.bench.statistics import percentile, summarise
from headway_runtime.program import Program

from tests.bench.figures import cpu_seconds, machine, over_rounds, told, verdict
from tests.bench.minilm import minilm_pod, prepared, program, sentences, split_processors, tensors, wire
from tests.unit.pod_process import PodProcess

CONNECTIONS = 32
OVERLOADS = (1.5, 3.0)  # offered, of what can be answered


def direct(run: Program, requests: Sequence[Request], processors: set[int], seconds: float) -> dict[str, float]:
    """The program called with one request after the other: median seconds, and processor seconds for each."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        made = [tensors([request]) for request in requests]
        took = []
        processor, end = time.process_time(), time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            run.run(made[len(took) % len(made)])
            took.append(time.perf_counter() - began)
        return {"p50": summarise(took).p50, "cpu": (time.process_time() - processor) / len(took)}
    finally:
        os.sched_setaffinity(0, mine)


def offline(run: Program, requests: Sequence[Request], processors: set[int], batch: int) -> float:
    """Processor seconds for each request when all are there, sorted by length, in runs of `batch`."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        ordered = sorted(requests, key=lambda request: request.sizes["sequence"])
        runs = [tensors(ordered[at : at + batch]) for at in range(0, len(ordered), batch)]
        processor = time.process_time()
        for inputs in runs:
            run.run(inputs)
        return (time.process_time() - processor) / len(ordered)
    finally:
        os.sched_setaffinity(0, mine)


def latency_round(
    server: PodProcess, run: Program, requests: list[Request], pod_on: set[int], seconds: float
) -> dict[str, float]:
    """One round of the latency figure."""
    address = Address("127.0.0.1", server.port)
    sent = wire(requests, address)
    found = {"direct_p50": direct(run, requests, pod_on, seconds)["p50"]}
    most, most_per_cpu = _closed(server, address, sent, seconds)
    saturation = most.throughput
    found["saturation"] = saturation
    third = open_loop(address, sent, rate=saturation / 3, seconds=2 * seconds).summary()
    busy = open_loop(address, sent, rate=saturation * 0.8, seconds=2 * seconds).summary()
    found |= {"third_p50": third.p50, "third_p99": third.p99, "busy_p50": busy.p50, "busy_p99": busy.p99}
    found["third_ratio"] = third.p50 / found["direct_p50"]
    found["busy_ratio"] = busy.p99 / busy.p50
    for times in OVERLOADS:
        before = cpu_seconds(server.process.pid)
        flood = open_loop(address, sent, rate=saturation * times, seconds=2 * seconds, connections=600)
        flood_per_cpu = len(flood.latencies) / (cpu_seconds(server.process.pid) - before)
        again, again_per_cpu = _closed(server, address, sent, seconds)  # the machine's mood now
        most_now, per_cpu_now = (saturation + again.throughput) / 2, (most_per_cpu + again_per_cpu) / 2
        saturation, most_per_cpu = again.throughput, again_per_cpu
        refused = sorted(at for each in flood.refusals.values() for at in each)
        found[f"goodput_{times:g}"] = flood.throughput / most_now
        found[f"goodput_per_cpu_{times:g}"] = flood_per_cpu / per_cpu_now
        found[f"refused_p99_{times:g}"] = percentile(refused, 99) if refused else float("nan")
        found[f"refused_max_{times:g}"] = refused[-1] if refused else float("nan")
        found[f"lost_{times:g}"] = float(flood.losses.total() + len(flood.refusals.get(504, ())))
        found[f"answered_p99_{times:g}"] = flood.summary().p99
    return found


def _closed(server: PodProcess, address: Address, sent: list[bytes], seconds: float) -> tuple[Samples, float]:
    """A closed loop that saturates, and its answers for each second of the pod's processor."""
    before = cpu_seconds(server.process.pid)
    samples = closed_loop(address, sent, connections=CONNECTIONS, seconds=seconds)
    return samples, len(samples.latencies) / (cpu_seconds(server.process.pid) - before)


def cost_round(
    server: PodProcess, run: Program, requests: list[Request], pod_on: set[int], seconds: float
) -> dict[str, float]:
    """One round of the cost figure: closed loops in JSON and with one connection, and the best offline batch."""
    address = Address("127.0.0.1", server.port)
    sent = wire(requests, address)
    best = min(offline(run, requests, pod_on, batch) for batch in (4, 8, 16))
    alone = direct(run, requests, pod_on, seconds)["cpu"]
    before, began = cpu_seconds(server.process.pid), time.perf_counter()
    samples = closed_loop(address, sent, connections=CONNECTIONS, seconds=seconds)
    used, took = cpu_seconds(server.process.pid) - before, time.perf_counter() - began
    own = used / len(samples.latencies)
    return {
        "offline_cpu": best,
        "direct_cpu": alone,
        "own_cpu": own,
        "ratio": best / own,
        "over_direct": alone / own,
        "batch": samples.mean_batch or float("nan"),
        "per_second": samples.throughput,
        "busy": used / took,
        "p99": samples.summary().p99,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", choices=["latency", "cost"], nargs="+", default=["latency", "cost"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--precision", type=Precision, nargs="+", choices=list(Precision), default=[Precision.EXPORTED])
    parser.add_argument("--capacity", type=int, default=32, help="rows that may wait")
    parser.add_argument("--processors", type=int, default=1, help="the pod's")
    parser.add_argument("--instances", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(max(1, options.processors // options.instances))
    pod_on, client_on = split_processors(options.processors)
    os.sched_setaffinity(0, client_on)
    requests = sentences(256)
    knobs = {"maxWait": "0ms", "queue": {"capacity": options.capacity, "timeout": "20s"}}
    results: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "knobs": knobs}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as pods, torch.inference_mode():
        model = prepared(Path(name))
        served: dict[str, tuple[PodProcess, Program]] = {}
        for precision in options.precision:
            (folder := Path(name) / precision).mkdir()
            made = minilm_pod(folder, pod_on, knobs, model=model, precision=precision, instances=options.instances)
            server = pods.enter_context(made)
            served[precision.value] = server, program(model, precision)
        for figure in options.figure:
            measure = latency_round if figure == "latency" else cost_round
            for server, run in served.values():
                measure(server, run, requests, pod_on, 1)  # nothing is cold afterwards
            rounds: dict[str, list[dict[str, float]]] = {each: [] for each in served}
            for _ in range(options.rounds):
                for each, (server, run) in served.items():
                    rounds[each].append(measure(server, run, requests, pod_on, options.seconds))
            results[figure] = {each: over_rounds(found) for each, found in rounds.items()}
    results["load_after"] = os.getloadavg()[0]
    print(json.dumps(results))
    for figure in options.figure:
        for each, found in results[figure].items():
            print(f"\n{each}")
            (_show_latency if figure == "latency" else _show_cost)(found)


def _show_latency(found: dict[str, dict[str, float]]) -> None:
    print(f"saturation {told(found['saturation'], 'requests/s')}; direct p50 {told(found['direct_p50'], 'ms', 1e3)}")
    for name, label in (("third", "a third"), ("busy", "80 %")):
        p50, p99 = (told(found[f"{name}_{p}"], "ms", 1e3) for p in ("p50", "p99"))
        print(f"at {label} of saturation: p50 {p50}, p99 {p99}")
    for times in OVERLOADS:
        refused = told(found[f"refused_p99_{times:g}"], "ms", 1e3)
        answered = told(found[f"answered_p99_{times:g}"], "ms", 1e3)
        print(f"at {times:g} of saturation: answered p99 {answered}, refused p99 {refused}")
    print(verdict("p50 at a third of saturation, of a direct call", found["third_ratio"]["median"], 1.15, at_most=True))
    print(verdict("p99 at 80 %, of p50", found["busy_ratio"]["median"], 5, at_most=True))
    for times in OVERLOADS:
        at = f"at {times:g} of saturation"
        print(verdict(f"goodput {at}, of the most", found[f"goodput_{times:g}"]["median"], 0.95, at_most=False))
        name = f"goodput for a second of the pod's processor {at}, of the most"
        print(verdict(name, found[f"goodput_per_cpu_{times:g}"]["median"], 0.95, at_most=False))
        print(verdict(f"p99 of refusals {at}, s", found[f"refused_p99_{times:g}"]["median"], 0.05, at_most=True))


def _show_cost(found: dict[str, dict[str, float]]) -> None:
    for name, label in (("offline_cpu", "offline, sorted"), ("direct_cpu", "one by one"), ("own_cpu", "the pod")):
        print(f"{label}: {told(found[name], 'ms of processor a request', 1e3)}")
    rate, rows, busy = told(found["per_second"], "requests/s"), told(found["batch"], "rows a run"), told(found["busy"])
    print(f"the pod: {rate}, {rows}, busy {busy}")
    print(f"requests per processor second, of one by one: {told(found['over_direct'])}")
    print(verdict("requests per processor second, of offline", found["ratio"]["median"], 0.9, at_most=False))


if __name__ == "__main__":
    main()
