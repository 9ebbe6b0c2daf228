"""Headway, vLLM and llama.cpp, each as its own tree of processes: started, measured, ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.generation import asking, models
from tests.bench.generation.workload import Question
from tests.bench.peers import generation as installed
from tests.bench.peers import processes
from tests.bench.peers.ports import free_ports
from tests.unit import pod_process

PEERS = Path(processes.__file__).parent
START_SECONDS = 600
LONGEST = 1024  # tokens of a sequence


class StartError(Exception):
    """The server does not run on this machine; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is served: the model, sequences at a time, compute threads; no server keeps prefixes."""

    model: str
    slots: int
    threads: int


@dataclass(frozen=True, slots=True)
class Kind:
    """A server. `command` gets the plan, a folder of its own and a port; `more`: what its requests have besides."""

    name: str
    title: str
    command: Callable[[Plan, Path, int], list[str]]
    more: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """One that answers. `root` is above all its processes."""

    kind: Kind
    root: int
    port: int

    def cpu(self) -> float:
        """CPU seconds so far, of all its processes."""
        return processes.cpu_seconds(self.root, processes.ProcessTable.now())

    def resident(self) -> int:
        """Bytes."""
        return processes.resident_bytes(self.root, processes.ProcessTable.now())


def _headway(precision: str) -> Callable[[Plan, Path, int], list[str]]:
    def command(plan: Plan, folder: Path, port: int) -> list[str]:
        model = models.prepared(plan.model, folder / "model")
        knobs = {"maxWait": "0ms", "maxBatch": plan.slots, "prefixCache": False, "queue": {"timeout": "600s"}}
        pod_process.mount(folder / "knobs", json.dumps(knobs))
        blocks = plan.slots * LONGEST
        generation = {"maxLength": LONGEST, "cacheBytes": _cache(plan.model, blocks)}
        cold = {"precision": precision, "generation": generation}
        return pod_process.command(folder, model, cold, port, port + 1)

    return command


def _cache(model: str, tokens: int) -> str:
    """What keys and values of so many tokens take in float32: layers x key and value x heads x width x 4 bytes."""
    per_token = {"smollm2": 30 * 2 * 3 * 64 * 4, "gemma3": 18 * 2 * 1 * 256 * 4}[model]
    return f"{-(-per_token * (tokens + 32) // 2**20)}Mi"


def _vllm(*options: str) -> Callable[[Plan, Path, int], list[str]]:
    def command(plan: Plan, folder: Path, port: int) -> list[str]:
        del folder
        python = installed.vllm()
        served = ["--model", str(models.hugging_face(plan.model)), "--served-model-name", pod_process.MODEL]
        fixed = ["--dtype", "float32", "--no-enable-prefix-caching", "--max-num-seqs", str(plan.slots)]
        where = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(LONGEST)]
        quiet = ["--disable-log-stats", "--disable-uvicorn-access-log"]
        module = "vllm.entrypoints.openai.api_server"
        return [str(python), "-m", module, *served, *fixed, *where, *quiet, *options]

    return command


def _llama_cpp(plan: Plan, folder: Path, port: int) -> list[str]:
    del folder
    python = installed.llama_cpp()
    told = {
        "port": port,
        "model": str(models.q8_0(plan.model)),
        "slots": plan.slots,
        "threads": plan.threads,
        "longest": LONGEST,
    }
    return [str(python), str(PEERS / "servers/llamacpp_server.py"), json.dumps(told)]


_NAMED = {"model": pod_process.MODEL}
_VLLM_VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("headway", "Headway, float32", _headway("Exported"), _NAMED),
        Kind("headway-int8", "Headway, Int8", _headway("Int8"), _NAMED),
        Kind("vllm", "vLLM for CPUs, float32", _vllm(), _NAMED, _VLLM_VARIABLES),
        Kind("vllm-eager", "vLLM for CPUs, float32, eager", _vllm("--enforce-eager"), _NAMED, _VLLM_VARIABLES),
        Kind("llamacpp", "llama.cpp, Q8_0", _llama_cpp, {**_NAMED, "cache_prompt": False}),
    )
}


def _environment(kind: Kind, plan: Plan, folder: Path) -> dict[str, str]:
    peer = not kind.name.startswith("headway")
    kept = {k: v for k, v in os.environ.items() if not (peer and k in ("PYTHONPATH", "VIRTUAL_ENV"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(plan.threads))
    # Waiting threads that spin would count as work: nobody's do.
    return {
        **kept,
        **threads,
        "OMP_WAIT_POLICY": "passive",
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": str(folder),
        **kind.environment,
    }


@contextmanager
def started(kind: Kind, plan: Plan, folder: Path, question: Question) -> Iterator[Server]:
    """The server, once it has answered; ended with all that it started. Raises StartError, InstallError."""
    port = free_ports()
    line = kind.command(plan, folder, port)
    log = folder / "server.log"
    processors = sorted(os.sched_getaffinity(0))[: plan.threads]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "taskset",
                "--cpu-list",
                ",".join(map(str, processors)),
                sys.executable,
                str(PEERS / "supervise.py"),
                *line,
            ],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=_environment(kind, plan, folder),
            start_new_session=True,
        )
    try:
        _wait(process, kind, port, question, log)
        yield Server(kind, process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait(process: "subprocess.Popen[bytes]", kind: Kind, port: int, question: Question, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    last: Exception | None = None
    while time.monotonic() < end:
        if process.poll() is not None:
            raise StartError(f"{kind.title} ended at its start: {_tail(log)}")
        try:
            asking.drive(port, [question], 1, kind.more, stream=False)
        except (OSError, asking.WrongAnswerError) as error:
            last = error
            if isinstance(error, asking.WrongAnswerError) and not str(error).startswith("503"):
                raise StartError(f"{kind.title}: {error}") from None
            time.sleep(0.25)
        else:
            return
    raise StartError(f"{kind.title}: no answer in {START_SECONDS} s ({last}): {_tail(log)}")


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-5:])[-1000:]
