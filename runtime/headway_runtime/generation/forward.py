"""A run of the program for the works of a step. If it fails, each is run alone: only who fails alone has failed.

To repeat is harmless: keys and values are written again where they were.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Protocol

import torch

from headway_runtime.errors import ProgramFailedError, first_line
from headway_runtime.generation.assembly import Assembly, Part
from headway_runtime.generation.step import Work
from headway_runtime.logs import log_seldom
from headway_runtime.memory import out_of_memory
from headway_runtime.prepare.decoder import DecoderFacts, DecoderGeometry
from headway_runtime.program.decoder import StepInputs


class Cache(Protocol):
    """Keys and values: `blocks` in each layer, block 0 among them; `bytes` in all."""

    @property
    def blocks(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class Decoder(Protocol):
    """What runs a step. `step` returns float32 [L, V]; it raises RuntimeError. `copy`: whole blocks, (from, to)."""

    @property
    def geometry(self) -> DecoderGeometry: ...
    @property
    def facts(self) -> DecoderFacts: ...
    @property
    def cache(self) -> Cache: ...
    def step(self, inputs: StepInputs) -> torch.Tensor: ...
    def copy(self, pairs: Many[tuple[int, int]]) -> None: ...


@dataclass(slots=True)
class Ran:
    """`works` that ran, each with the row of `logits`, [L, V], where its own begin; `failed`: those that did not."""

    works: list[Work]
    firsts: list[int]
    logits: torch.Tensor
    failed: list[tuple[Work, ProgramFailedError]] = field(default_factory=list)
    retried: int = 0


class Forward:
    """For one thread."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._assembly = Assembly()

    def run(self, works: Many[Work]) -> Ran:
        """All works, in one run if that goes well."""
        try:
            return self._run(works)
        except Exception as error:
            if len(works) == 1:
                return Ran([], [], torch.empty(0, 0), [(works[0], _failure(error))])
            lacking = out_of_memory(error)
            log_seldom("step_failed", sequences=len(works), error_type=type(error).__name__, out_of_memory=lacking)
        return self._one_by_one(works)  # outside of the handler: its traceback holds what the failed run has allocated

    def _one_by_one(self, works: Many[Work]) -> Ran:
        alone = [self.run([work]) for work in works]
        ran = [each for each in alone if each.works]
        firsts, at = [], 0
        for each in ran:
            firsts.append(at)
            at += each.logits.shape[0]
        logits = torch.cat([each.logits for each in ran]) if ran else torch.empty(0, 0)
        failed = [failure for each in alone for failure in each.failed]
        return Ran([each.works[0] for each in ran], firsts, logits, failed, retried=1)

    def _run(self, works: Many[Work]) -> Ran:
        parts = [
            Part(work.sequence.tokens, work.sequence.blocks, work.start, work.count, work.logits, work.drafts)
            for work in works
        ]
        logits = self._decoder.step(self._assembly.join(parts))
        firsts, at = [], 0
        for part in parts:
            firsts.append(at)
            at += part.wanted
        return Ran(list(works), firsts, logits)


def _failure(error: Exception) -> ProgramFailedError:
    log_seldom("program_failed", error_type=type(error).__name__)
    return ProgramFailedError(f"the program failed on this request: {type(error).__name__}: {first_line(error)}")
