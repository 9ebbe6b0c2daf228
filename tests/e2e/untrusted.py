"""A program that needs much memory, signatures, and Secrets of keys."""

from pathlib import Path

import torch
from headway_runtime.export import Size, export_model
from headway_runtime.native.build import build
from headway_runtime.prepare.signatures.keys import PrivateKey
from headway_runtime.prepare.signatures.verify import sign_statement, signature_file

from tests.e2e.cluster_access import Object
from tests.e2e.small import FEATURES


class Hungry(torch.nn.Module):
    """FP32 [batch, FEATURES] -> FP32 [batch, 4]; needs 67 MB for each row while it runs, and nothing afterwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = (x[:, :, None] * x[:, None, :]).flatten(1)
        fours = (pairs[:, :, None] * pairs[:, None, :]).flatten(1)
        return (fours[:, :, None] * fours[:, None, :]).sum((1, 2))[:, None].expand(-1, 4).clone()


def hungry(path: Path) -> Path:
    """`Hungry`, for a batch of 1 to 32."""
    inputs = {"x": torch.zeros(2, FEATURES)}
    export_model(Hungry().eval(), inputs, path=path, dynamic_shapes={"x": {0: Size("batch", 1, 32)}})
    return path


def sign(path: Path, *keys: PrivateKey, of: Path | None = None) -> Path:
    """Write the signature of a file (or of another one, `of`) beside it."""
    signature = signature_file(path)
    signature.write_bytes(sign_statement(of or path, *keys, torch=torch.__version__.partition("+")[0]))
    return signature


def compiled(honest: Path, path: Path, builder: PrivateKey) -> list[Path]:
    """The program as native code for any x86-64 of the last ten years, and its builder's signature."""
    build(honest, path, target="x86-64-v3", keys=[builder])
    return [path, signature_file(path)]


def secret(namespace: str, name: str, **keys: PrivateKey) -> Object:
    """A Secret with the public halves of keys."""
    pem = {f"{each}.pub": key.public_pem().decode() for each, key in keys.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": pem,
    }
