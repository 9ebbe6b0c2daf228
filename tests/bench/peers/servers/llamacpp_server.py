"""llama.cpp's own server, by xllamacpp: `python llamacpp_server.py JSON`."""

import json
import signal
import sys

import xllamacpp

told = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = told["model"]
params.hostnames = ["127.0.0.1"]
params.port = told["port"]
params.n_parallel = told["slots"]
params.n_ctx = told["slots"] * told["longest"]
params.cont_batching = True
params.cpuparams.n_threads = told["threads"]
params.cpuparams_batch.n_threads = told["threads"]
params.cpuparams.poll = 0  # a waiting thread that polls would count as work
params.cpuparams_batch.poll = 0
params.cache_prompt = False
params.n_threads_http = told["slots"] + 2
params.warmup = True
server = xllamacpp.Server(params)
print(xllamacpp.get_system_info(), server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
