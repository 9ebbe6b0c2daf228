"""Recommenders: bags of embeddings, interactions, two towers."""

from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import ROWS, Case


class Clicks(nn.Module):
    """Dense features and bags of ids, their pairwise products, and an MLP (as DLRM)."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(40, 8, mode=mode) for mode in ("sum", "mean", "max"))
        self.top = nn.Linear(8 + 6, 1)
        self.register_buffer("rows", torch.triu_indices(4, 4, 1)[0])
        self.register_buffer("columns", torch.triu_indices(4, 4, 1)[1])

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """dense [rows, 5], ids [rows, 3, 4]"""
        first = self.dense(dense)
        found = torch.stack([first, *(bag(ids[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(found, found.transpose(1, 2))[:, self.rows, self.columns]
        answer: torch.Tensor = self.top(torch.cat([first, products], 1)).sigmoid().squeeze(1)
        return answer


class Bag(nn.Module):
    """Ragged bags: values and where each bag starts, with a weight for each value."""

    def __init__(self, *, last: bool = False) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(40, 8, mode="sum", include_last_offset=last, padding_idx=3)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.bag(ids, offsets, per_sample_weights=weights)
        return found


class Towers(nn.Module):
    """Users and items embedded apart; scores of a user over all items, and the best of them."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(20, 8, max_norm=None), nn.Embedding(30, 8, padding_idx=0)

    def forward(self, user: torch.Tensor, history: torch.Tensor) -> Any:
        asked = self.users(user) + self.items(history).mean(1)
        scores = nn.functional.normalize(asked, dim=-1) @ nn.functional.normalize(self.items.weight, dim=-1).t()
        return scores.topk(5).indices, scores


def ids(*shape: int, below: int = 40) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(5))


RAGGED = (ids(7), torch.tensor([0, 2, 2, 5]), torch.rand(7, generator=torch.Generator().manual_seed(6)))

PROGRAMS: dict[str, Case] = {
    "clicks": Case(Clicks, (torch.ones(3, 5), ids(3, 3, 4)), dynamic=(ROWS, ROWS), batches=(1, 5)),
    "bag": Case(Bag, RAGGED),
    "bag_last_offset": Case(lambda: Bag(last=True), (RAGGED[0], torch.tensor([0, 2, 2, 7]), RAGGED[2])),
    "clicks_decomposed": Case(
        Clicks, (torch.ones(3, 5), ids(3, 3, 4)), dynamic=(ROWS, ROWS), batches=(1, 5), decompose=True
    ),
    "towers": Case(Towers, (ids(3, below=20), ids(3, 4, below=30)), dynamic=(ROWS, ROWS), batches=(1, 5)),
}
