"""What clients speak: the Open Inference Protocol version 2, over REST (`http`) and over gRPC (`grpc`).

A request is decoded to what every protocol shares (`headway_runtime.serving`), and answered by one call. `oip` reads
and writes the bodies of REST: JSON (`tensors`), or JSON followed by tensors as they are (`binary`). Source:
https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_rest.md`.
"""
