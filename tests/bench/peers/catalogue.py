"""The peers: what is installed, what is run, how it is asked, and the settings it is measured with.

Of `settings` the first is what `--tune` found best on the machine of docs/benchmarks.md; the others are what it was
chosen from. `max_batch` counts rows, `max_wait` seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.bench.peers.forms import Form, bento, binary, instances, oip, plain
from tests.unit.pod_process import MODEL

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Peer:
    """`requirements` make its environment (none: this project's own), `packages` are those whose version is told.
    `script` is a file of `servers/`; None: Headway's pod.
    """

    name: str
    title: str
    form: Form
    settings: tuple[Settings, ...]
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    script: str | None = None
    needs: str | None = None  # a program that must be on PATH

    @property
    def home(self) -> str:
        """The name of its environment: two rows may be one server run or asked in two ways."""
        return self.name.partition("-")[0]


def _grid(*waits_ms: float, batch: int = 32, **more: Any) -> tuple[Settings, ...]:
    return tuple({"max_batch": batch, "max_wait": wait / 1000, **more} for wait in waits_ms)


_OIP = f"/v2/models/{MODEL}/infer"
_PEERS = (
    Peer("headway", "Headway, JSON", oip(_OIP, "FP32"), _grid(1, 0, 0.5, 2)),
    Peer("headway-binary", "Headway, binary tensors", binary(_OIP, "FP32"), _grid(1, 0, 0.5, 2)),
    Peer(
        "mosec",
        "mosec, with orjson",
        plain("/inference", "y"),
        _grid(2, 1, 5),
        ("mosec==0.9.8", "orjson", "numpy"),
        ("mosec",),
        "mosec_server.py",
    ),
    Peer(
        "mosec-default",
        "mosec, as it comes",
        plain("/inference", "y"),
        _grid(2, 1, 5, json="default"),
        ("mosec==0.9.8", "orjson", "numpy"),
        ("mosec",),
        "mosec_server.py",
    ),
    Peer(
        "litserve",
        "LitServe",
        plain("/predict", "y"),
        (*_grid(1, 5, 10, fast_queue=True), *_grid(1, 5, 10)),
        ("litserve==0.2.19", "orjson", "numpy"),
        ("litserve", "uvicorn"),
        "litserve_server.py",
    ),
    Peer(
        "triton",
        "Triton (PyTriton), JSON",
        oip("/v2/models/mlp/infer", "FP32"),
        _grid(5, 0, 0.5, 1, 10),
        ("nvidia-pytriton==0.7.0",),
        ("nvidia-pytriton",),
        "triton_server.py",
    ),
    Peer(
        "triton-binary",
        "Triton (PyTriton), binary tensors",
        binary("/v2/models/mlp/infer", "FP32"),
        _grid(5, 0, 0.5, 1, 10),
        ("nvidia-pytriton==0.7.0",),
        ("nvidia-pytriton",),
        "triton_server.py",
    ),
    Peer(
        "torchserve",
        "TorchServe",
        plain("/predictions/mlp", "y"),
        _grid(1, 2, 5, 10),
        ("torchserve==0.12.0", "torch-model-archiver==0.12.0", "pyyaml", "nvidia-ml-py"),
        ("torchserve",),
        "torchserve_server.py",
        needs="java",
    ),
    Peer(
        "mlserver",
        "MLServer",
        oip("/v2/models/mlp/infer", "FP32"),
        (*_grid(5, 1, 2, 10), *_grid(0, batch=1)),
        ("mlserver==1.7.1",),
        ("mlserver", "fastapi"),
        "mlserver_server.py",
    ),
    Peer(
        "bentoml",
        "BentoML",
        bento("/predict"),
        _grid(1000, 100, 60_000),
        ("bentoml==1.4.40", "numpy"),
        ("bentoml",),
        "bentoml_server.py",
    ),
    Peer(
        "kserve",
        "KServe (Python model server)",
        instances("/v1/models/mlp:predict"),
        _grid(0, batch=1),
        ("kserve==0.21.0",),
        ("kserve", "fastapi"),
        "kserve_server.py",
    ),
    Peer(
        "rayserve",
        "Ray Serve",
        plain("/", "y"),
        (*_grid(1, 5, 10), *_grid(5, 10, environment={"RAY_SERVE_THROUGHPUT_OPTIMIZED": 1})),
        ("ray[serve]==2.60.0", "numpy"),
        ("ray",),
        "rayserve_server.py",
    ),
    Peer("asgi", "reference: raw ASGI + batcher", plain("/", "y"), _grid(2, 0, 0.5, 1), script="asgi_server.py"),
    Peer(
        "fastapi", "reference: FastAPI handler", plain("/predict", "y"), _grid(0, batch=1), script="fastapi_server.py"
    ),
)
MLP: Mapping[str, Peer] = {peer.name: peer for peer in _PEERS}

_SENTENCES = tuple(
    {"max_batch": batch, "max_wait": wait}
    for batch, wait in ((4, 0.002), (8, 0.005), (16, 0.005), (32, 0.01), (1, 0.0))
)
MINILM: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("headway", "Headway, JSON", oip(_OIP, "INT64"), _grid(0, 2, 5)),
        Peer("headway-bfloat16", "Headway, BFloat16", oip(_OIP, "INT64"), _grid(0, 2, 5, precision="BFloat16")),
        Peer("headway-int8", "Headway, Int8", oip(_OIP, "INT64"), _grid(0, 2, 5, precision="Int8")),
        replace(MLP["mosec"], form=plain("/inference", "embedding"), settings=_SENTENCES),
        replace(MLP["litserve"], form=plain("/predict", "embedding"), settings=_SENTENCES),
        replace(MLP["asgi"], form=plain("/", "embedding"), settings=_SENTENCES),
    )
}
