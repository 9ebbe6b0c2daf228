"""What the benchmarks of text generation share.

`models.py`: the real decoders in the forms that a server wants (prepared for the pod, a folder for vLLM, Q8_0 for
llama.cpp); `workload.py`: prompts and lengths, the same for everybody; `asking.py`: one client for every server;
`servers.py`: Headway, vLLM and llama.cpp as trees of processes. `inprocess.py`: an engine without a pod, whose clock is
the CPU time of its process; `static.py`: the batching that continuous batching is held against.
"""
