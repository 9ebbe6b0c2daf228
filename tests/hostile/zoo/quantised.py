"""Quantised models: weights only, dynamic by row, and what the pt2e flow writes."""

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed operators
from torch import nn

from tests.hostile.zoo.case import ROWS, Case

Q = torch.ops.quantized_decomposed


class WeightOnly(nn.Module):
    """int8 weights with a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (16, 8), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(16) / 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


class PerChannel(nn.Module):
    """Static activations by tensor, weights by channel, as a pt2e quantiser leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (4, 3, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4) / 100)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8), 0.02, 3, -128, 127, torch.int8
        )
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = nn.functional.conv2d(x, weight).relu()
        q = Q.quantize_per_tensor(y, 0.01, -128, -128, 127, torch.int8)
        return Q.dequantize_per_tensor(q, 0.01, -128, -128, 127, torch.int8)


class Dynamic(nn.Module):
    """The scale of the activations is found from the data, for the tensor and for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        scale, zero = Q.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
        q = Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        y = self.linear(Q.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8))
        scales, zeros = Q.choose_qparams_per_token(x, torch.int8)
        rows = Q.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
        return y, Q.dequantize_per_token(rows, scales, zeros, -128, 127, torch.int8, torch.float32)


class Integers(nn.Module):
    """A matrix product of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (32, 8), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        q = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(q, self.weight).to(torch.float32) * scale


class Half(nn.Module):
    """Weights in half precision, sums in single."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8, dtype=torch.float16), nn.LayerNorm(8, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x.half())).float().softmax(-1)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


PROGRAMS: dict[str, Case] = {
    "int8_weights": Case(WeightOnly, (noise(3, 8),), dynamic=(ROWS,), batches=(1, 5)),
    "int8_channels": Case(PerChannel, (noise(3, 3, 8, 8),), dynamic=(ROWS,), batches=(1, 5)),
    "int8_dynamic": Case(Dynamic, (noise(3, 8),), dynamic=(ROWS,), batches=(1, 5)),
    "int8_product": Case(Integers, (noise(20, 32),)),
    "half": Case(Half, (noise(3, 8),), dynamic=(ROWS,), batches=(1, 5)),
}
