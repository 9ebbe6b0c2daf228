"""What the sandbox costs, at the start of a pod and for each request. By hand: `python -m tests.bench.bench_sandbox`.

Two pods take turns, one confined, one on a kernel that is made to look as if it had neither Landlock nor seccomp.
Figures are CPU times of the serving process, so that other work on the machine does not count.
"""

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.unit.pod_process import PodProcess, command, mount, question
from tests.unit.small_models import Encoder, export, prepare

ROUNDS, REQUESTS = 6, 500
BATCHING = {"shapeBuckets": {"batch": [1], "sequence": [4]}, "dimensions": {"sequence": "ids.1"}}
NOTHING = {"landlock": errno.ENOSYS, "seccomp": errno.ENOSYS}
START = """
import os, sys, time
from pathlib import Path
from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process
began = time.process_time()
files = files_of_this_process(read=[], scratch=Path(sys.argv[1]), gpu=False)
confine(files, demand=Sandbox.REQUIRE)
print(1000 * (time.process_time() - began))
"""


@contextmanager
def started(folder: Path, model: Path, lack: dict[str, int]) -> Iterator[PodProcess]:
    folder.mkdir()
    mount(folder / "knobs", '{"maxWait":"0ms"}')
    ports = free_port(), free_port()
    arguments = command(folder, model, {"batching": BATCHING, "sandbox": "BestEffort"}, *ports)
    request = json.dumps({"acts": [], "world": {}, "lack": lack, "user": None})
    wrapped = [sys.executable, "-m", "tests.unit.sandbox_server", request, *arguments[3:]]
    with (folder / "log").open("wb") as log, httpx.Client(timeout=30) as client:
        process = subprocess.Popen(wrapped, stderr=log)
        try:
            pod = PodProcess(process, folder, *ports, client)
            pod.wait_for_phase(seconds=120)
            yield pod
        finally:
            process.kill()
            process.wait()


def cpu_seconds(pod: PodProcess) -> float:
    fields = Path(f"/proc/{pod.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of_requests(pod: PodProcess) -> float:
    """CPU microseconds of one request."""
    began = cpu_seconds(pod)
    for _ in range(REQUESTS):
        pod.client.post(pod.infer, json=question([[1, 2, 3]])).raise_for_status()
    return 1e6 * (cpu_seconds(pod) - began) / REQUESTS


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = [sys.executable, "-c", START, str(folder)]
        starts = [float(subprocess.run(start, capture_output=True, check=True).stdout) for _ in range(5)]
        print(f"confining a process: {min(starts):.1f} ms of CPU time (best of {len(starts)})")
        model = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
        pods = {
            "confined": stack.enter_context(started(folder / "confined", model, {})),
            "unconfined": stack.enter_context(started(folder / "unconfined", model, NOTHING)),
        }
        for pod in pods.values():
            cost_of_requests(pod)
        costs: dict[str, list[float]] = {name: [] for name in pods}
        for _ in range(ROUNDS):
            for name, pod in pods.items():
                costs[name].append(cost_of_requests(pod))
        median = {name: sorted(each)[len(each) // 2] for name, each in costs.items()}
        print(f"a request, median of {ROUNDS} x {REQUESTS}: {median['confined']:.0f} us of CPU time confined, ", end="")
        print(f"{median['unconfined']:.0f} us unconfined, ratio {median['confined'] / median['unconfined']:.2f}")


if __name__ == "__main__":
    main()
