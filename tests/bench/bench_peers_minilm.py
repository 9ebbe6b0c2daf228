"""Headway beside the cheapest of the other servers, on sentences of mixed lengths through MiniLM. By hand: `python
tests/bench/bench_peers_minilm.py`.

128 questions as token ids and mask in JSON, about 30 tokens on average and up to 128. Closed loop with 32 connections;
then open loop, at shares of what the best peer reached in the closed one. Every peer runs the same exported program on
one compute thread and pads a batch to its longest sentence, at the batch size that `--tune` found best for it. Headway
has two more rows, with weights of a lower precision, which no peer offers: they answer within that precision's limits.
Rounds alternate.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it runs as a file

from tests.bench.peers import workloads
from tests.bench.peers.catalogue import MINILM
from tests.bench.peers.comparison import Contender, arena, closed, end_in_order, open_loop, say, take_turns
from tests.bench.peers.results import Result, as_json, machine, shown, standing

MOST_CONNECTIONS = 256


def best_peer_rate(contenders: Sequence[Contender]) -> float:
    """Requests a second of the best peer in the closed loop; Headway's own where it stands alone."""
    rates = {c.result.peer.name: c.result.figure("per_second").median for c in contenders if not c.result.reason}
    others = [rate for name, rate in rates.items() if not name.startswith("headway")]
    return max(others, default=max(rates.values(), default=0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(MINILM), help="names, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="of one round of one server")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--shares", default="0.33,0.8,1.2", help="open loop, as shares of the best peer's closed rate")
    parser.add_argument("--tune", action="store_true", help="closed loop over every setting of each peer")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    peers = [MINILM[name] for name in options.peers.split(",")]
    end_in_order()
    where = machine()
    shares = [] if options.tune else [float(share) for share in options.shares.split(",") if share]
    if options.tune:
        groups = [[Result(peer, settings)] for peer in peers for settings in peer.settings]
    else:
        groups = [[Result(peer, peer.settings[0]) for peer in peers]]
    drives = {"closed": "closed loop"}
    with tempfile.TemporaryDirectory() as folder:
        workload = workloads.minilm(Path(folder))
        for group in groups:
            with arena(group, workload, closed(options.connections, 3)) as contenders:
                take_turns(contenders, "closed", closed(options.connections, options.seconds), options.rounds)
                best = best_peer_rate(contenders)
                for share in shares:
                    name, rate = f"open {share:g}", best * share
                    drives[name] = f"open loop, {rate:.0f} requests/s ({share:g} of the best peer's closed loop)"
                    say(drives[name])
                    drive = open_loop(rate, MOST_CONNECTIONS, options.seconds)
                    take_turns(contenders, name, drive, options.rounds, may_refuse=True)
    results = [result for group in groups for result in group]
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "drives": drives, "results": as_json(results)}, indent=1))
    print(where)
    for name, title in drives.items():
        print(f"\n{title}\n\n{shown(results, name, together=not options.tune)}")
    print(f"\n{standing(results)}")


if __name__ == "__main__":
    main()
