"""Load for an hour: is every answer right, and does the pod's memory stay? By hand:

    python tests/bench/bench_soak.py --seconds 3600

A small encoder, so that the path is worked hard: requests of several rows and lengths, in JSON and binary, in closed
and open loops, under changing knobs, beside clients that misbehave (`tests/bench/soak.py`). Exit code 1 when an answer
was wrong or memory grew.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

import torch
from headway_runtime.program import load_program

from tests.bench.figures import cpu_seconds, machine
from tests.bench.soak import BUCKETS, soak
from tests.unit.pod_process import pod
from tests.unit.small_models import Encoder, export, prepare

GROWTH = 8 * 2**20  # bytes: allocators round and keep; a leak of a hundred bytes a request is more within minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "model")
        program = load_program(folder / "model", dimension_names={}, device="cpu", program=None)
        with pod(folder, folder / "model", batching={"shapeBuckets": BUCKETS}) as server:
            server.wait_for_phase()
            before = cpu_seconds(server.process.pid)
            try:
                found = soak(server, program, seconds=options.seconds)
            except Exception:
                print(f"the pod's exit code is {server.process.poll()}; the end of its log:", file=sys.stderr)
                print((folder / "log").read_text()[-4000:], file=sys.stderr)
                raise
            used = cpu_seconds(server.process.pid) - before
            report = server.report()
    grown, share = found.growth()
    result = {
        "machine": machine(),
        "seconds": options.seconds,
        "answersChecked": found.checked,
        "wrong": found.wrong,
        "statuses": dict(found.statuses),
        "lost": dict(found.lost),
        "misdeeds": found.misdeeds,
        "cpuPerAnswer": used / max(1, found.checked),
        "memory": {"first": found.memory[0][1], "last": found.memory[-1][1], "grown": grown, "share": share},
        "requests": report["requests"],
    }
    print(json.dumps(result))
    first, last = found.memory[0][1], found.memory[-1][1]
    print(f"{found.checked} answers checked, {len(found.wrong)} wrong; lost {dict(found.lost)}")
    print(f"statuses {dict(found.statuses)}")
    print(f"memory {first / 2**20:.0f} -> {last / 2**20:.0f} MiB; grown {grown / 2**20:+.1f} MiB")
    sys.exit(bool(found.wrong) or grown > GROWTH)


if __name__ == "__main__":
    main()
