"""Models that several benchmarks measure."""

import torch


class Mlp(torch.nn.Module):
    """x [batch, 128], or more -> y [batch, 16]."""

    def __init__(self, floats: int = 128) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(floats, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result
