"""Programs that carry graphs: `cond`, `scan`, `map`, autocast, and gradients switched off and on."""

from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import AUTO, ROWS, Case


class Nested(nn.Module):
    """`cond` in `cond`, with parameters, a size among the operands, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        width = x.shape[1]

        def left(x: torch.Tensor) -> Any:
            return torch.cond(x.max() > 1, lambda x: (self.left(x), x + 1), lambda x: (self.right(x), x * width), (x,))

        return torch.cond(x.sum() > 0, left, lambda x: (self.right(x) - 1, x * 2), (x,))


class Scanned(nn.Module):
    """A recurrent cell written with `scan`: over time, with a state, weights and a size that it needs."""

    def __init__(self, *, reverse: bool = False) -> None:
        super().__init__()
        self.cell, self.reverse = nn.Linear(10, 6), reverse

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
        """x [rows, time, 4], state [rows, 6]"""
        from torch._higher_order_ops.scan import scan

        rows = x.shape[0]

        def step(state: torch.Tensor, x: torch.Tensor) -> Any:
            state = torch.tanh(self.cell(torch.cat([state, x], -1)))
            return state, (state * rows, state.sum(-1))

        return scan(step, state, x, dim=1, reverse=self.reverse)


class Mapped(nn.Module):
    """`map` over rows; results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        from torch._higher_order_ops.map import map as map_

        return map_(lambda row, y: {"a": self.linear(row) + y, "b": row.sort(-1).values}, x, y)


class ScanInMap(nn.Module):
    """Running sums of each row by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as map_
        from torch._higher_order_ops.scan import scan

        def sums(row: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = scan(lambda c, v: (c + v, c * 1), torch.zeros_like(row[0]), row)[1]
            return found

        found: torch.Tensor = map_(sums, x)
        return found


class Cast(nn.Module):
    """Autocast on, off inside of it, and off where it is off already."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                z = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            return y, z, self.linear(z @ x)


class Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.linear(x)
        with torch.enable_grad():
            z: torch.Tensor = self.linear(y)
        return z + y


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))
SERIES = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(5))
STATE = torch.randn(3, 6, generator=torch.Generator().manual_seed(6))

PROGRAMS: dict[str, Case] = {
    "nested_cond": Case(Nested, (X,), dynamic=({0: AUTO, 1: AUTO},), batches=(3, 7)),
    "scan": Case(Scanned, (SERIES, STATE), dynamic=(ROWS, ROWS), batches=(1, 5)),
    "scan_reverse": Case(lambda: Scanned(reverse=True), (SERIES, STATE), dynamic=(ROWS, ROWS), batches=(1, 5)),
    "scan_decomposed": Case(Scanned, (SERIES, STATE), dynamic=(ROWS, ROWS), batches=(1, 6), decompose=True),
    "map": Case(Mapped, (SERIES, SERIES[0].clone()), dynamic=(ROWS, None)),
    "scan_in_map": Case(ScanInMap, (SERIES,), dynamic=(ROWS,), batches=(1, 5)),
    "autocast": Case(Cast, (X,), dynamic=(ROWS,), batches=(1, 5)),
    "gradients_switched": Case(Switched, (X,), dynamic=(ROWS,), batches=(1, 5)),
}
