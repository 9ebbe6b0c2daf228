"""The tensors of a step, from what the scheduler planned: no padding, no loop over tokens, buffers that are kept."""

from array import array
from collections.abc import Sequence as Many
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headway_runtime.generation.sequence import blocks_for
from headway_runtime.generation.values import Tokens
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.program.decoder import StepInputs


class Part(NamedTuple):
    """Rows of one sequence in a run: `known` of its `tokens` from `start` on, then `drafts`. The logits of the last
    `wanted` rows are needed.
    """

    tokens: "array[int]"
    blocks: "array[int]"
    start: int
    known: int
    wanted: int
    drafts: Tokens = ()

    @property
    def rows(self) -> int:
        """Of the run."""
        return self.known + len(self.drafts)


class Assembly:
    """Used by one thread. What `join` returns is overwritten by its next call."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.int64)
        self._tables = np.empty(0, np.int32)

    def join(self, parts: Many[Part]) -> StepInputs:
        """T rows of all parts, in their order; M blocks for each."""
        rows = np.array([part.rows for part in parts], np.int64)
        starts = np.array([part.start for part in parts], np.int64)
        wanted = np.array([part.wanted for part in parts], np.int64)
        ends = np.cumsum(rows)
        begins = ends - rows
        lengths = starts + rows
        total = int(ends[-1])
        positions = np.arange(total) + np.repeat(starts - begins, rows)
        tables = self._joined_tables(parts, lengths)
        owners = np.repeat(np.arange(len(parts)), rows)
        slots = tables[owners, positions // BLOCK_TOKENS].astype(np.int64) * BLOCK_TOKENS + positions % BLOCK_TOKENS
        wanted_ends = np.cumsum(wanted)
        logits = np.arange(int(wanted_ends[-1])) + np.repeat(ends - wanted_ends, wanted)
        query = np.zeros(len(parts) + 1, np.int32)
        query[1:] = ends
        return StepInputs(
            torch.from_numpy(self._joined_ids(parts, total)),
            torch.from_numpy(positions),
            torch.from_numpy(slots),
            torch.from_numpy(tables),
            torch.from_numpy(lengths.astype(np.int32)),
            torch.from_numpy(query),
            torch.from_numpy(logits if len(logits) else np.zeros(1, np.int64)),
        )

    def _joined_ids(self, parts: Many[Part], total: int) -> NDArray[np.int64]:
        if len(self._ids) < total:
            self._ids = np.empty(2 * total, np.int64)
        ids, at = self._ids[:total], 0
        for part in parts:
            start, known = part.start, part.known
            if known == 1:
                ids[at] = part.tokens[start]
            else:
                ids[at : at + known] = part.tokens[start : start + known]
            at += known
            if part.drafts:
                ids[at : at + len(part.drafts)] = part.drafts
                at += len(part.drafts)
        return ids

    def _joined_tables(self, parts: Many[Part], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32 [B, M]; 0 behind the blocks that hold the sequence's tokens."""
        most = blocks_for(int(lengths.max()))
        if len(self._tables) < len(parts) * most:
            self._tables = np.empty(2 * len(parts) * most, np.int32)
        tables = self._tables[: len(parts) * most].reshape(len(parts), most)
        for row, part, length in zip(tables, parts, lengths.tolist(), strict=True):
            count = blocks_for(length)
            row[:count] = part.blocks[:count]
            row[count:] = 0
        return tables
