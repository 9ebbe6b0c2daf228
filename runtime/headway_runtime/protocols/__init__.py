"""What clients speak: the Open Inference Protocol version 2 over REST, in JSON.

An HTTP request enters at `front` (a plain ASGI function: the hot routes bypass every framework), is decoded by `oip`
and `tensors`, waits in the batching engine, and leaves as JSON. `documents` (FastAPI) serves what is not hot: metadata
and `/docs`. Source: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_rest.md`.
"""
