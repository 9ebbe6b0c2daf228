"""Recurrent networks."""

from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import ROWS, Case


class Tagger(nn.Module):
    """A bidirectional LSTM over words, with states that start from a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.start = nn.Parameter(torch.randn(4, 1, 6))
        self.out = nn.Linear(12, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = self.start.expand(-1, ids.shape[0], -1).contiguous()
        found: torch.Tensor = self.out(self.lstm(self.words(ids), (state, state))[0]).log_softmax(-1)
        return found


class Forecast(nn.Module):
    """A GRU that hands back its state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 7, num_layers=2)
        self.out = nn.Linear(7, 3)

    def forward(self, series: torch.Tensor) -> Any:
        """series [time, rows, 3]"""
        found, state = self.gru(series)
        return self.out(found[-1]), state


class Elman(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn = nn.RNN(4, 6, num_layers=2, nonlinearity=kind, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x)


class Cells(nn.Module):
    """A decoder of cells in a Python loop, which export unrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gru, self.out = nn.LSTMCell(4, 6), nn.GRUCell(6, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 6)
        state = x
        for _ in range(3):
            h, c = self.cell(state, (h, c))
            state = self.gru(h, state)
        found: torch.Tensor = self.out(state)
        return found


SERIES = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(5))
WORDS = torch.randint(0, 30, (3, 5), generator=torch.Generator().manual_seed(5))

PROGRAMS: dict[str, Case] = {
    "tagger": Case(lambda: Tagger().eval(), (WORDS,), dynamic=(ROWS,), batches=(1, 4)),
    "forecast": Case(lambda: Forecast().eval(), (torch.randn(6, 2, 3),), dynamic=({1: ROWS[0]},)),
    "rnn_tanh": Case(lambda: Elman("tanh").eval(), (SERIES,), dynamic=(ROWS,), batches=(1, 4)),
    "rnn_relu": Case(lambda: Elman("relu").eval(), (SERIES,), dynamic=(ROWS,), batches=(1, 4)),
    "cells": Case(lambda: Cells().eval(), (SERIES[:, 0],), dynamic=(ROWS,), batches=(1, 4)),
    "tagger_decomposed": Case(
        lambda: Tagger().eval(), (WORDS[:, :2],), dynamic=(ROWS,), batches=(1, 4), decompose=True
    ),
}
