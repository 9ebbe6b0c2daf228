"""Inputs and outputs of every nesting, weights of every kind, and state."""

import collections
import dataclasses
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.hostile.zoo.case import AUTO, ROWS, Case


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Found:
    score: torch.Tensor
    label: torch.Tensor
    extra: torch.Tensor | None = None


pytree._register_namedtuple(Pair, serialized_type_name="tests.Pair")
torch.export.register_dataclass(Found, serialized_type_name="tests.Found")


class GivesPair(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Pair(x + 1, x * 2)


class TakesPair(nn.Module):
    """A branch on sizes makes a guard that names the tuple's fields."""

    def forward(self, pair: Pair) -> torch.Tensor:
        return pair.left * 2 if pair.left.shape[0] * pair.right.shape[1] > 12 else pair.right


class GivesDataclass(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Found(x.softmax(-1), x.argmax(-1))


class TakesDataclass(nn.Module):
    def forward(self, found: Found) -> torch.Tensor:
        return found.score * 2 if found.score.shape[0] * found.label.shape[1] > 12 else found.label


class GivesModelOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers.modeling_outputs import BaseModelOutput

        self.kind = BaseModelOutput

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(last_hidden_state=x + 1, hidden_states=(x, x * 2))


class GivesReturnType(nn.Module):
    """What `torch.max` and its kind return."""

    def forward(self, x: torch.Tensor) -> Any:
        return {"best": torch.max(x, 1), "sorted": torch.sort(x, 1)}


class GivesEverything(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rest = {"none": None, "empty": [], "tuple": (x[0], [x.sum()]), 3: x}
        return collections.OrderedDict(b=x + 1, a=rest, size=x.shape[0], half=x.shape[0] / 2, number=7)


class GivesInputs(nn.Module):
    """Results that are inputs, weights or views of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        return x, x.view(-1), x[0], self.linear.weight, self.linear.bias.expand(2, 6)


class Options(nn.Module):
    """Arguments that are fixed when exporting."""

    def forward(self, x: torch.Tensor, mode: str = "a", *, flag: bool = True, times: int = 3, extra: Any = None) -> Any:
        y = x * times if mode == "a" else x
        return {"y": y if flag else x, "extra": extra}


class NoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(5.0))

    def forward(self) -> torch.Tensor:
        return self.table.cumsum(0)


class Weights(nn.Module):
    """Tied parameters, a view of one, persistent and other buffers, plain tensors, literals, an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.two = nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.register_buffer("kept", torch.randn(6))
        self.register_buffer("made", torch.ones(6), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False, True, True, False, True]))
        self.register_buffer("turned", torch.randn(6, 6).t())
        self.register_buffer("none", torch.zeros(0, 6))
        self.plain = torch.arange(6.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(self.one(x)) * self.kept + self.made + self.plain
        y = y @ self.turned + torch.tensor([1.0, 2, 3, 4, 5, 6])
        return torch.cat([y.masked_fill(self.mask, 0.5), self.none])


class Counter(nn.Module):
    """State of two kinds: a number of runs, and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.mean) * self.runs


class InPlace(nn.Module):
    """Writes to tensors of its own, in all the ways there are, and to an input."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        made = torch.zeros_like(x)
        made[x > 0] = 1
        made[:, 0] += 2
        made.index_add_(0, torch.tensor([0, 0]), x[:1].repeat(2, 1)).masked_fill_(x > 1, 7.0).clamp_(max=3)
        y.transpose(0, 1)[2].relu_()
        return made + x.clone().sub_(1).relu_(), y * 2


class Checks(nn.Module):
    """What the author promises of sizes and of data."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> Any:
        torch._check(x.shape[0] == y.shape[0] * 2)
        torch._assert_async((x == x).all(), "not a number")
        k = n.item()
        torch._check(k >= 1)
        torch._check(k <= x.shape[1])
        return x + y.repeat(2, 1), x.narrow(1, 0, k)


class DataSizes(nn.Module):
    """Sizes that the data decide."""

    def forward(self, x: torch.Tensor) -> Any:
        places = torch.nonzero(x > 0)
        torch._check(places.shape[0] > 0)
        return places, x[x > 0].sort().values, torch.unique(x.round()), torch.ones(places.shape[0])


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x) * (1 + 2j)), torch.view_as_real(torch.polar(x.abs(), x))


class Indexing(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rows = torch.arange(x.shape[0], device=x.device)
        return (
            x[..., None], x[:, ::2], x[rows, rows % 6], x[:, -1], x.flip(0), torch.stack(x.unbind(1)),
            torch.cat(x.split(2, 1)), x.roll(1, 0), x.unfold(1, 2, 1), x.diagonal(), x.tril(), x.cummax(1).values,
            torch.where(x > 0, x, -x), x.gather(1, x.argsort(1)), torch.bucketize(x, torch.tensor([-1.0, 0, 1])),
        )  # fmt: skip


class Stretched(nn.Module):
    """Each element as often as the data say; instance norm; a few special functions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(6, affine=True)

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> Any:
        """x [rows, 6, n], times [6]"""
        y = self.norm(x)
        return y.repeat_interleave(times, 1), torch.special.ndtr(y), torch.special.entr(y.abs()), torch.special.i0e(y)


class Powers(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        n = x.shape[1]
        return x / n**0.5, x * n**2, torch.ones(n**2), (2 * n) ** -1 * x


class Switched(nn.Module):
    """A boolean as a number."""

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> Any:
        return x * flag.item()


class Strided(nn.Module):
    """Views that count from the start of a weight's memory, of a weight that is not the first of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.arange(40.0))
        self.second = nn.Parameter(torch.arange(100.0, 120.0))

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.first.sum(), self.second.as_strided((2, 2), (3, 1), 1), self.second.as_strided((2, 3), (5, 2))


class GivesAsItIs(nn.Module):
    """A parameter, views of it, and numbers that are negated by a bit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(12.0).reshape(3, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, self.weight, self.weight.t()[1:], torch.fft.rfft(x).conj().imag


class Vmapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.vmap(lambda row: row.sum() + row)(x)
        return found


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 6)), generator=torch.Generator().manual_seed(5))


BOTH = {0: AUTO, 1: AUTO}

PROGRAMS: dict[str, Case] = {
    "named_tuple_out": Case(GivesPair, (x(),), dynamic=(ROWS,), batches=(1,)),
    "named_tuple_in": Case(TakesPair, (Pair(x(), x()),), dynamic=(Pair(BOTH, BOTH),), batches=(5,), examples=False),
    "dataclass_out": Case(GivesDataclass, (x(),), dynamic=(ROWS,), batches=(1,)),
    "dataclass_in": Case(TakesDataclass, (Found(x(), x()),), dynamic=([BOTH, BOTH],), batches=(5,), examples=False),
    "model_output": Case(GivesModelOutput, (x(),), dynamic=(ROWS,), batches=(1,)),
    "return_type": Case(GivesReturnType, (x(),), dynamic=(ROWS,), batches=(1,)),
    "everything_out": Case(GivesEverything, (x(),), dynamic=(ROWS,), batches=(1,)),
    "inputs_out": Case(GivesInputs, (x(),), dynamic=(ROWS,), batches=(1,)),
    "options": Case(Options, (x(), "a"), {"flag": True, "times": 3, "extra": None}),
    "no_inputs": Case(NoInputs),
    "weights": Case(Weights, (x(),), dynamic=(ROWS,), batches=(1,)),
    "weights_strict": Case(Weights, (x(),), dynamic=(ROWS,), batches=(1,), strict=True),
    "weights_decomposed": Case(Weights, (x(),), dynamic=(ROWS,), batches=(1,), decompose=True),
    "counter": Case(Counter, (x(),), dynamic=(ROWS,), batches=(1,)),
    "counter_decomposed": Case(Counter, (x(),), dynamic=(ROWS,), batches=(1,), decompose=True),
    "in_place": Case(InPlace, (x(), x()), dynamic=(ROWS, ROWS), batches=(3,)),
    "in_place_decomposed": Case(InPlace, (x(), x()), dynamic=(ROWS, ROWS), batches=(3,), decompose=True),
    "checks": Case(Checks, (x(), x(2, 6), torch.tensor(2)), dynamic=({0: AUTO}, {0: AUTO}, None)),
    "data_sizes": Case(DataSizes, (x(),), dynamic=({0: AUTO},), batches=(3,)),
    "complex": Case(Complex, (x(),), dynamic=({0: AUTO},), batches=(3,)),
    "complex_decomposed": Case(Complex, (x(),), dynamic=({0: AUTO},), batches=(3,), decompose=True),
    "stretched": Case(Stretched, (x(2, 6, 5), torch.tensor([1, 0, 2, 1, 3, 1])), dynamic=(ROWS, None)),
    "stretched_decomposed": Case(
        Stretched, (x(2, 6, 5), torch.tensor([1, 0, 2, 1, 3, 1])), dynamic=(ROWS, None), decompose=True
    ),
    "indexing": Case(Indexing, (x(),), dynamic=({0: AUTO},), batches=(5,)),
    "powers": Case(Powers, (x(),), dynamic=({0: AUTO, 1: AUTO},), batches=(3,)),
    "switched": Case(Switched, (x(), torch.tensor(True))),
    "strided": Case(Strided, (x(),), dynamic=(ROWS,), batches=(1,)),
    "as_it_is": Case(GivesAsItIs, (x(),), dynamic=(ROWS,), batches=(1,)),
    "vmap_decomposed": Case(Vmapped, (x(),), dynamic=(ROWS,), batches=(1,), decompose=True),
}
