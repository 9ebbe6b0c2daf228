"""Small programs, each for one thing that real models do; and what is refused, each for its rule."""

import collections
from collections.abc import Mapping
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed operators
from torch import nn

from tests.hostile.zoo.case import AUTO, BATCH, SEQUENCE, Case


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Cnn(nn.Module):
    """Batch norm in eval mode, in-place ReLU, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, groups=2), nn.SiLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.5), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (
            z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """Tied weights: one record, two names."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(101, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.head = nn.Linear(32, 101, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + 1, lambda x: x.sin() - 1, (x,))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(self.lstm(x)[0])[0]


class Branch(nn.Module):
    """Python branches on a product of sizes: only a guard remembers which was taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] * x.shape[1] > 12 else x * 10


class Nested(nn.Module):
    def forward(
        self, batch: Mapping[str, torch.Tensor], pair: tuple[torch.Tensor, torch.Tensor], *, scale: float
    ) -> Any:
        return {"sum": batch["a"] + batch["b"], "rest": [pair[0] * scale, (pair[1] - 1, None, 3)]}


class KeepsState(nn.Module):
    """A decode step that writes into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 16, 8))
        self.proj = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(1, at, self.proj(x))
        return (self.cache @ x.transpose(1, 2)).softmax(1)


class WritesInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x[:, 0].mul_(3)
        return x.sum(1)


class Int8(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 127, (16, 8), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.05, 0, -128, 127, torch.int8)
        y = torch.ops.quantized_decomposed.dequantize_per_tensor(q, 0.05, 0, -128, 127, torch.int8)
        return y @ (self.weight.to(torch.float32) * 0.01).t()


class DataSize(nn.Module):
    """A size that the data decide."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        torch._check(k > 0)
        torch._check(k < 100)
        return torch.zeros(k, 3) + x[:1]


class Literals(nn.Module):
    """Tensor literals, a list in place, sizes as values."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x.clone()
        y[0] = torch.tensor([1.0, 2.0, 3.0])
        y[:, 1] += float("inf")
        return y, x.shape[0]


class Padded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        return nn.functional.pad(x, (0, 0, 0, 4 - n % 4)).view(b, -1, 4, d).mean(2)


class View8(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 8).sum(1)


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 16, hop_length=8, window=self.window, return_complex=True).abs()


class Resized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


class Einsum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bij,bjk->bik", x, y).topk(2, dim=-1).values


class Collected(nn.Module):
    """Arguments in ``*xs`` and ``**more``: guards name them otherwise than the graph (torch's own loader fails)."""

    def forward(self, x: torch.Tensor, *xs: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return (x + xs[0] + xs[1]) * more["scale"]


PROGRAMS: dict[str, Case] = {
    "mlp": Case(Mlp, (torch.randn(4, 16),), dynamic=({0: BATCH},), batches=(1, 7)),
    "mlp_static": Case(Mlp, (torch.randn(4, 16),)),
    "mlp_decomposed": Case(Mlp, (torch.randn(4, 16),), dynamic=({0: BATCH},), batches=(1, 7), decompose=True),
    "cnn": Case(lambda: Cnn().eval(), (torch.randn(2, 3, 16, 16),), dynamic=({0: BATCH},), batches=(1, 5)),
    "cnn_decomposed": Case(lambda: Cnn().eval(), (torch.randn(2, 3, 16, 16),), dynamic=({0: BATCH},), decompose=True),
    "decoder": Case(Decoder, (torch.randint(0, 101, (2, 8)),), dynamic=({0: BATCH, 1: SEQUENCE},), batches=(1, 3)),
    "cond": Case(Cond, (torch.randn(4, 8),), dynamic=({0: BATCH},), batches=(1, 3)),
    "recurrent": Case(lambda: Recurrent().eval(), (torch.randn(3, 5, 8),), dynamic=({0: BATCH},), batches=(2,)),
    "branch": Case(Branch, (torch.randn(4, 6),), dynamic=({0: AUTO, 1: AUTO},)),
    "nested": Case(Nested, ({"a": torch.ones(2), "b": torch.ones(2)}, (torch.ones(3), torch.ones(2))), {"scale": 2.5}),
    "keeps_state": Case(KeepsState, (torch.randn(1, 1, 8), torch.tensor([3]))),
    "keeps_state_decomposed": Case(KeepsState, (torch.randn(1, 1, 8), torch.tensor([3])), decompose=True),
    "writes_input": Case(WritesInput, (torch.randn(4, 5),), dynamic=({0: BATCH},), batches=(2,)),
    "int8": Case(Int8, (torch.randn(4, 8),), dynamic=({0: BATCH},), batches=(1,)),
    "bfloat16": Case(lambda: nn.Linear(8, 8, dtype=torch.bfloat16), (torch.randn(4, 8, dtype=torch.bfloat16),)),
    "data_size": Case(DataSize, (torch.randn(4, 3), torch.tensor(5))),
    "literals": Case(Literals, (torch.randn(4, 3),), dynamic=({0: BATCH},), batches=(2,)),
    "padded": Case(Padded, (torch.randn(2, 7, 4),), dynamic=({0: AUTO, 1: AUTO},)),
    "view8": Case(View8, (torch.randn(4, 16),), dynamic=({0: AUTO, 1: AUTO},)),
    "spectrum": Case(Spectrum, (torch.randn(2, 64),), dynamic=({0: BATCH},), batches=(3,)),
    "resized": Case(Resized, (torch.randn(2, 3, 8, 8),), dynamic=({0: BATCH},), batches=(3,)),
    "einsum": Case(Einsum, (torch.randn(2, 3, 4), torch.randn(2, 4, 5)), dynamic=({0: BATCH},) * 2, batches=(3,)),
}  # fmt: skip


COLLECTED = Case(
    Collected,
    (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)),
    {"scale": torch.ones(2, 3)},
    dynamic={"x": {0: AUTO}, "xs": ({0: AUTO}, {0: AUTO}), "more": {"scale": {0: AUTO}}},
)


class Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64), x))


class WritesParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


class Sized(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x.repeat(n)


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


class OneNameTwice(nn.Module):
    def forward(self, x: dict[str, Any]) -> torch.Tensor:
        difference: torch.Tensor = x["a"]["b"] - x["a.b"]
        return difference


class OneOutputTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"a": {"b": x + 1}, "a.b": x - 1}


class Expanded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zeros", torch.zeros(1).expand(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.zeros


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x)


class Deque(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return collections.deque([x + 1])


class Vmapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.vmap(lambda row: row.sum() + row)(x)
        return found


REFUSED: dict[str, tuple[Case, str]] = {
    "training_batch_norm": (Case(lambda: Cnn().train(), (torch.randn(2, 3, 16, 16),)), "operator.training"),
    "active_dropout": (Case(lambda: nn.Dropout(0.5).train(), (torch.randn(4),)), "operator.training"),
    "noise": (Case(Noise, (torch.randn(4),)), "operator.random"),
    "loop": (Case(Loop, (torch.randn(4),)), "operator.loop"),
    "vmap": (Case(Vmapped, (torch.randn(3, 4),)), "operator.vmap"),
    "deque": (Case(Deque, (torch.randn(3),)), "tree.type"),
    "writes_parameter_decomposed": (Case(WritesParameter, (torch.randn(3),), decompose=True), "write.parameter"),
    "writes_parameter": (Case(WritesParameter, (torch.randn(3),)), "write.parameter"),
    "one_name_twice": (Case(OneNameTwice, ({"a": {"b": torch.ones(2)}, "a.b": torch.ones(2)},)), "name.twice"),
    "one_output_twice": (Case(OneOutputTwice, (torch.ones(2),)), "name.twice"),
    "expanded_buffer": (Case(Expanded, (torch.ones(3),)), "tensor.overlap"),
    "complex_output": (Case(Fourier, (torch.ones(3),)), "tensor.protocol"),
    "integer_input": (Case(Sized, (torch.randn(3), 3), dynamic=(None, AUTO)), "input.kind"),
}
