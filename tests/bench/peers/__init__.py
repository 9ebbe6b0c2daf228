"""The other model servers, measured beside Headway on one machine in one run.

`catalogue.py` says what the peers are, with the settings they are given; `install.py` makes an environment for each;
`servers/` holds the program that each of them runs, written as its documentation advises; `workloads.py` makes the
models, the requests and the right answers; `running.py` starts a server as a tree of processes under `supervise.py` and
ends it; `client.py` drives it and checks every answer; `processes.py` counts the CPU time of the whole tree;
`figures.py` turns rounds into medians and ranges. `tests/bench/bench_peers.py` and `tests/bench/bench_peers_minilm.py`
put it together.
"""
