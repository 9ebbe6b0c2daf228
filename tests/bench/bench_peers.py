"""Headway beside the other model servers: a small MLP, so that the path is measured and not the model. By hand: `python
tests/bench/bench_peers.py`; `--help` has the options.

Each peer is installed in an environment of its own (once), runs a server written as its documentation advises, with its
own dynamic batching, and is driven by the same client: 32 connections in a closed loop, every answer checked. All
servers are up at once and take turns, so that what else the machine does meets all alike. CPU time is that of a
server's whole tree of processes. Prints tables, and JSON with `--json`. What cannot run here is listed with the reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tests.bench.peers import workloads
from tests.bench.peers.catalogue import MLP
from tests.bench.peers.comparison import arena, closed, end_in_order, take_turns
from tests.bench.peers.results import Result, as_json, machine, shown, standing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(MLP), help="names, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2, help="of one round of one server")
    parser.add_argument("--warm", type=float, default=8, help="seconds of load before the first round")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--tune", action="store_true", help="measure every setting of each peer instead of its best")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument(
        "--install-java", action="store_true", help="first install a Java runtime by apt, for TorchServe"
    )
    options = parser.parse_args()
    if unknown := set(options.peers.split(",")) - set(MLP):
        parser.error(f"--peers: no {', '.join(sorted(unknown))}; there are {', '.join(MLP)}")
    if options.install_java:
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "openjdk-17-jre-headless"], check=True)
    peers = [MLP[name] for name in options.peers.split(",")]
    end_in_order()
    where = machine()
    drive, warm = (closed(options.connections, seconds) for seconds in (options.seconds, options.warm))
    if options.tune:
        groups = [[Result(peer, settings)] for peer in peers for settings in peer.settings]
    else:
        groups = [[Result(peer, peer.settings[0]) for peer in peers]]
    with tempfile.TemporaryDirectory() as folder:
        workload = workloads.mlp(Path(folder))
        for group in groups:
            with arena(group, workload, warm) as contenders:
                take_turns(contenders, "closed", drive, options.rounds)
    results = [result for group in groups for result in group]
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "results": as_json(results)}, indent=1))
    print(where, shown(results, together=not options.tune), standing(results), sep="\n\n")


if __name__ == "__main__":
    main()
