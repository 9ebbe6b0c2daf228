"""Triton Inference Server on the CPU, with a Python model by PyTriton: Triton's own dynamic batcher."""

import os
import sysconfig
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from served import config, load_array


def use_own_libpython() -> None:
    """PyTriton's wheel brings a libpython that can be older than the standard library it then finds, which fails with
    an AttributeError in multiprocessing: let Triton's Python processes take this interpreter's.
    """
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    if library.suffix != ".a" and library.exists():
        os.environ["LD_PRELOAD"] = str(library)


def main() -> None:
    settings = config()
    use_own_libpython()
    run = load_array()

    @batch
    def infer(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": run(x)}

    ports = TritonConfig(
        http_address="127.0.0.1",
        http_port=settings["port"],
        allow_grpc=False,
        allow_metrics=False,
        http_thread_count=settings.get("http_threads"),
        log_verbose=0,
    )
    batcher = DynamicBatcher(max_queue_delay_microseconds=round(settings["max_wait"] * 1e6))
    with Triton(config=ports, workspace=f"{settings['folder']}/workspace") as triton:
        triton.bind(
            model_name="mlp",
            infer_func=infer,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(128,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(16,))],
            config=ModelConfig(max_batch_size=settings["max_batch"], batcher=batcher),
            strict=False,
        )
        triton.serve()


if __name__ == "__main__":
    main()
