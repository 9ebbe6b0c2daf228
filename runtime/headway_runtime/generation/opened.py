"""From a prepared directory to an open decoder: measured, given its share of the memory, and only then loaded.

read ─► measure (no memory yet) ─► share_out ─► pack weights, take the cache ─► engine
                                      └─ WillNotFit, with the numbers
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from headway_api.podconfig import ColdConfig
from headway_api.types import CacheType, DeviceKind
from tokenizers import Tokenizer

from headway_runtime import memory
from headway_runtime.generation.constraints import Constraints
from headway_runtime.generation.delivery import Deliver, Delivery, StepRecord
from headway_runtime.generation.engine import Engine
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import Generate, Stream
from headway_runtime.kernels import library
from headway_runtime.logs import log
from headway_runtime.prepare import repack
from headway_runtime.prepare import room as rooms
from headway_runtime.prepare.admission import check_draft, draft_of
from headway_runtime.prepare.budget import ELEMENT_BYTES, Budget, Need, share_out
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.prepare.room import Room
from headway_runtime.program.decoder import Decoder, DecoderFile, StepSizes, read_decoder

SEQUENCES = 64  # of a usual step, for which memory is set aside, and
STEP_TOKENS = 256  # its tokens: the defaults of the knobs
UNCOUNTED = 2.0
"""What a step takes of what was counted, which leaves out what operators need inside themselves. SmolLM2: 10 MiB where
5 were counted, for 256 tokens of a prompt; 12 where 12 were, for 64 sequences."""

DTYPES = {CacheType.FLOAT32: torch.float32, CacheType.BFLOAT16: torch.bfloat16}
_MOST = 65_536  # of either knob


@dataclass(frozen=True, slots=True)
class StepBytes:
    """What a step takes: bytes for each token, and for each sequence with its row of logits."""

    token: float
    sequence: float

    def of(self, tokens: int, sequences: int) -> int:
        """Bytes of one step."""
        return int(tokens * self.token + sequences * self.sequence)


@dataclass(frozen=True, slots=True)
class Files:
    """A decoder, and the program that proposes tokens to it, if one does; nothing of them is loaded."""

    decoder: DecoderFile
    draft: DecoderFile | None

    @property
    def all(self) -> tuple[DecoderFile, ...]:
        """Both, or the one."""
        return (self.decoder,) if self.draft is None else (self.decoder, self.draft)


@dataclass(frozen=True, slots=True)
class Kept:
    """What weights and a step take, and what computes."""

    weights_bytes: int
    step_bytes: int
    kernels: str


@dataclass(frozen=True, slots=True)
class Opened:
    """Loaded decoders with all that an engine needs. `sequences` and `step_tokens`: what a step may hold at most."""

    decoder: Decoder
    draft: Decoder | None
    facts: Facts
    settings: Settings
    budget: Budget
    sequences: int
    step_tokens: int
    kept: Kept

    def engine(self, deliver: Deliver, settings: Settings | None = None) -> Engine:
        """One that has not begun, with a cache in which nothing can be found."""
        sampler = Sampler(self.facts.vocabulary, self.facts.constraints)
        return Engine(self.decoder, sampler, self.facts.tokenizer, settings or self.settings, deliver, draft=self.draft)

    def answer(self, requests: Sequence[tuple[Generate, Stream]], settings: Settings | None = None) -> None:
        """By an engine of their own, which the calling thread runs until all are ended."""
        left = len(requests)

        def here(deliveries: Sequence[Delivery], _: StepRecord | None) -> None:
            nonlocal left
            for delivery in deliveries:
                delivery.hand_over()
                left -= delivery.ended
            if not left:
                engine.stop()

        engine = self.engine(here, settings)
        for generate, stream in requests:
            engine.submit(generate, stream)
        engine.run()


def read(config: ColdConfig, directory: Path, name: str | None) -> Files:
    """Raises ProgramError, FatalError `UnknownProgram`."""
    check_draft(config, repack.program_names(directory))
    decoder = read_decoder(directory, name)
    draft = draft_of(config)
    return Files(decoder, None if draft is None else read_decoder(directory, draft))


def open_decoders(config: ColdConfig, files: Files, tokenizer: Tokenizer, *, room: Room) -> Opened:
    """Measure, share the memory out (`room` is all that there is), and load.

    Raises ProgramError for a program that breaks its word, FatalError `WillNotFit`.
    """
    asked, precision = config.generation, config.precision
    on_host = config.device.kind is DeviceKind.CPU
    device = "cpu" if on_host else "cuda"
    need, line, budget = _share(config, files, room)
    log(
        "memory_shared",
        weights=need.weights,
        step=need.step,
        process=need.process,
        cache=budget.bytes,
        blocks=budget.blocks,
        max_length=budget.max_length,
        room=room.bytes,
    )
    opened = [
        each.open(blocks=budget.blocks, cache_dtype=DTYPES[asked.cache_type], precision=precision, device=device)
        for each in files.all
    ]
    decoder = opened[0]
    tokens, sequences = _bounds(line, budget, limits=[each.limits for each in opened])
    speculation = asked.speculation
    settings = Settings(
        max_length=budget.max_length,
        max_sequences=min(SEQUENCES, sequences),
        step_tokens=min(STEP_TOKENS, tokens),
        drafts=0 if speculation is None else speculation.tokens,
    )
    vocabulary = decoder.geometry.vocabulary
    return Opened(
        decoder,
        opened[1] if len(opened) > 1 else None,
        Facts(
            decoder.facts,
            tokenizer,
            vocabulary,
            budget.max_length,
            Constraints(tokenizer, vocabulary=vocabulary, end=decoder.facts.end),
        ),
        settings,
        budget,
        sequences,
        tokens,
        Kept(
            sum(each.weights_bytes for each in opened),
            need.step,
            library.describe() if on_host else "reference",
        ),
    )


def _share(config: ColdConfig, files: Files, room: Room) -> tuple[Need, StepBytes, Budget]:
    """What is needed, and what the cache gets."""
    asked = config.generation
    size = ELEMENT_BYTES[asked.cache_type]
    context = min(each.facts.context for each in files.all)
    context = min([context, *(each.limits.blocks * BLOCK_TOKENS for each in files.all)])
    line = measure(files.all, longest=asked.max_length or context)
    need = Need(
        weights=sum(each.weights_bytes(config.precision) for each in files.all),
        step=line.of(STEP_TOKENS, SEQUENCES),
        process=memory.in_use() if config.device.kind is DeviceKind.CPU else 0,
    )
    per_token = sum(each.geometry.bytes_per_token(size) for each in files.all)
    budget = share_out(asked, need, bytes_per_token=per_token, context=context, room=room, free=rooms.free())
    return need, line, budget


def measure(files: Sequence[DecoderFile], *, longest: int) -> StepBytes:
    """The larger of what a step of the decoder and one of its draft takes: they come one after the other."""
    blocks = -(-longest // BLOCK_TOKENS)
    lines = [_line(each, blocks) for each in files]
    return max(lines, key=lambda line: line.of(STEP_TOKENS, SEQUENCES))


def _line(file: DecoderFile, blocks: int) -> StepBytes:
    """By two steps: many tokens of one sequence, and one token of many. Every other takes no more than both."""
    most = file.limits
    tokens, sequences = min(STEP_TOKENS, most.tokens), min(SEQUENCES, most.sequences, most.logits, most.tokens)
    long = file.step(StepSizes(tokens, 1, min(blocks, most.blocks), 1)).peak
    wide = file.step(StepSizes(sequences, sequences, min(blocks, most.blocks), sequences)).peak
    sampled = 2 * 4 * file.geometry.vocabulary  # a row of logits, and what becomes of it
    return StepBytes(UNCOUNTED * long / tokens, UNCOUNTED * wide / sequences + sampled)


def _bounds(line: StepBytes, budget: Budget, *, limits: Sequence[StepSizes]) -> tuple[int, int]:
    """Tokens and sequences that a step may have at most: what is left of the memory is for more of either, in equal
    parts; and every sequence needs a block.
    """
    spare = budget.left / 2
    tokens = STEP_TOKENS + int(spare / max(1.0, line.token))
    sequences = SEQUENCES + int(spare / max(1.0, line.sequence))
    most_tokens = min([_MOST, *(each.tokens for each in limits)])
    most_sequences = min([_MOST, budget.blocks - 1, *(min(each.sequences, each.logits) for each in limits)])
    return min(tokens, most_tokens), min(sequences, most_sequences)
