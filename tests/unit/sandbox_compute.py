"""A process that confines itself or not, then computes with every library that torch brings along, on two threads, and
prints digests of the answers: convolutions (oneDNN makes its code at run time), recurrence, FFT and decompositions
(MKL), quantised products (FBGEMM), sorting, embeddings.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process


def answers() -> Iterator[bytes]:
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(7)
    with torch.inference_mode():
        image, matrix = torch.randn(4, 3, 64, 64), torch.randn(256, 256)
        quantised = torch.ao.nn.quantized.dynamic.Linear(256, 64)  # whose weights are whatever was in memory
        weights = torch.quantize_per_tensor(torch.randn(64, 256), 0.05, 0, torch.qint8)
        quantised.set_weight_bias(weights, torch.randn(64))
        for result in (
            matrix @ matrix,
            torch.nn.Conv2d(3, 16, 3)(image),
            torch.nn.Conv2d(3, 16, 3).to(torch.bfloat16)(image.to(torch.bfloat16)).float(),
            torch.nn.LSTM(256, 32)(matrix)[0],
            torch.fft.rfft2(image).abs(),
            torch.linalg.svdvals(matrix),
            torch.linalg.solve(matrix, matrix),
            quantised(matrix),
            torch.nn.functional.scaled_dot_product_attention(*[image.flatten(2)] * 3),
            torch.nn.EmbeddingBag(10, 8)(torch.arange(10).reshape(5, 2)),
            torch.nn.Linear(256, 64)(matrix).sort().values,
            matrix.exp().cumsum(0),
        ):
            yield result.contiguous().numpy().tobytes()


def main() -> None:
    scratch = Path(sys.argv[2])
    os.environ.update(TMPDIR=str(scratch), OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive")
    if sys.argv[1] == "confined":
        confine(files_of_this_process(read=[], scratch=scratch, gpu=False), demand=Sandbox.REQUIRE)
    for answer in answers():
        print(hashlib.sha256(answer).hexdigest())


if __name__ == "__main__":
    main()
