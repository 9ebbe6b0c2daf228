"""A decoder that is open: one step of all sequences at a time, its weights packed, its keys and values in blocks.

    file = read_decoder(directory)                  # nothing of the weights is in memory yet
    file.weights_bytes(precision), file.step_bytes(StepSizes(256, 64, 512, 64))
    decoder = file.open(blocks=4096, cache_dtype=torch.float32, precision=Precision.EXPORTED)
    logits = decoder.step(StepInputs(…))            # float32 [L, V]

The register machine is that of every program (`load.build`); two things are bound when it is built: attention to the
cache, and multiplications by stored weights to packed ones (`packing`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from headway_api.types import Precision

from headway_runtime.kernels.cache import PagedCache
from headway_runtime.kernels.pointwise import pointwise
from headway_runtime.prepare import decoding, repack
from headway_runtime.prepare.decoder import ATTENTION, INPUTS, DecoderFacts, DecoderGeometry
from headway_runtime.prepare.sizes import dimensions as sizes_of
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program import load, packing
from headway_runtime.program.errors import OutputError, ProgramError, ShapeError
from headway_runtime.program.fusion.lean import Lean, lean
from headway_runtime.program.fusion.trial import MOST_TOKENS
from headway_runtime.program.interface import Interface, resolved, specs
from headway_runtime.program.machine import Machine
from headway_runtime.program.shape_gate import Need, ShapeGate
from headway_runtime.program.weights import Weights

UNBOUNDED = 1 << 62


class StepInputs(NamedTuple):
    """One step, in the contract's order (`prepare.decoder`): T tokens of B sequences, M blocks each, L logits."""

    token_ids: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T]
    slot_mapping: torch.Tensor  # int64 [T]
    block_tables: torch.Tensor  # int32 [B, M]
    seq_lens: torch.Tensor  # int32 [B]
    query_start_loc: torch.Tensor  # int32 [B + 1]
    logits_idx: torch.Tensor  # int64 [L]

    @property
    def sizes(self) -> "StepSizes":
        """T, B, M, L."""
        sequences, blocks = self.block_tables.shape
        return StepSizes(self.token_ids.shape[0], sequences, blocks, self.logits_idx.shape[0])


class StepSizes(NamedTuple):
    """Sizes of a step: tokens T, sequences B, blocks of the longest of them M, rows of logits L."""

    tokens: int
    sequences: int
    blocks: int
    logits: int


class Decoder:
    """Loaded. `weights_bytes`: packed weights and those that are read as they are stored; `limits`: the largest step
    that the program takes. One thread at a time may use it.
    """

    def __init__(
        self,
        *,
        geometry: DecoderGeometry,
        facts: DecoderFacts,
        limits: StepSizes,
        machine: Machine,
        cache: PagedCache,
        weights_bytes: int,
        device: torch.device,
    ) -> None:
        self.geometry = geometry
        self.facts = facts
        self.limits = limits
        self.cache = cache
        self.weights_bytes = weights_bytes
        self.device = device
        self._machine = machine

    def step(self, inputs: StepInputs) -> torch.Tensor:
        """Logits, float32 [L, V], on the decoder's device. Keys and values of all tokens with a slot are in the cache.

        Raises ShapeError for a step beyond `limits`, OutputError when the program breaks its word, RuntimeError from
        torch or from the cache, which refuses what would reach outside of it.
        """
        if any(size > most for size, most in zip(inputs.sizes, self.limits, strict=True)):
            message = f"a step of {inputs.sizes}; the program takes {self.limits}"
            raise ShapeError(message, input_name="token_ids", axis=None)
        if torch.is_inference_mode_enabled():
            return self._step(inputs)
        with torch.inference_mode():
            return self._step(inputs)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks of the cache, each pair (from, to)."""
        self.cache.copy(pairs)

    def _step(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.device.type != "cpu":
            inputs = [tensor.to(self.device, non_blocking=True) for tensor in inputs]
        logits = load.plain(self._machine.call(*inputs)[0])
        rows = inputs[-1].shape[0]
        if logits.dtype != torch.float32 or tuple(logits.shape) != (rows, self.geometry.vocabulary):
            found = f"{logits.dtype} {list(logits.shape)}"
            raise OutputError(f"logits are {found}, declared as float32 {[rows, self.geometry.vocabulary]}")
        return logits


class DecoderFile:
    """A prepared decoder before its weights take memory: what it is, and what it will need."""

    def __init__(self, directory: Path, name: str, document: Mapping[str, Any]) -> None:
        if not decoding.is_decoder(document):
            message = (
                f"program {name} generates no text; leave out spec.batching.policy, or export it with --task generate"
            )
            raise ProgramError("Accepted", "PolicyMismatch", message, field="spec.batching.policy")
        self.name = name
        self.geometry, self.facts = decoding.read(document)
        self.limits = _limits(document)
        self._directory = directory
        self._document = document
        self._plan = packing.plan(document, tables=True)
        self._gate: ShapeGate | None = None

    def weights_bytes(self, precision: Precision) -> int:
        """What the weights take, once it is open."""
        return packing.weights_bytes(self._plan, self._document, precision)

    def step(self, sizes: StepSizes) -> Need:
        """What one step of these sizes takes at least beside weights and cache: all live tensors at its worst moment.

        Raises ProgramError `ShapeMismatch` when the program is not what the file declares.
        """
        if self._gate is None:
            dimensions = resolved(self._document, configured={})
            inputs, outputs = (specs(self._document, side) for side in ("inputs", "outputs"))
            self._gate = ShapeGate(self._document, Interface(inputs=inputs, outputs=outputs, dimensions=dimensions))
        names = _names(self._document)
        return self._gate.measure({names[letter]: size for letter, size in zip("TBML", sizes, strict=True)})

    def open(self, *, blocks: int, cache_dtype: torch.dtype, precision: Precision, device: str = "cpu") -> Decoder:
        """Map the weights, pack those that are multiplied by, and take the memory of the cache."""
        where = torch.device(device)
        weights = Weights(self._directory / repack.WEIGHTS, self._document["weights"], where)
        found = self._lean(weights, where)
        multiplications = packing.pack(self._plan, weights, precision, wide=found.wide)
        cache = PagedCache(self.geometry, blocks=blocks, dtype=cache_dtype, device=where)
        functions = {**found.functions, ATTENTION: cache.attend}
        machine = load.build(
            found.document,
            found.constants,
            where,
            function=lambda name: functions.get(name) or multiplications.resolve(name),
        )
        return Decoder(
            geometry=self.geometry,
            facts=self.facts,
            limits=self.limits,
            machine=machine,
            cache=cache,
            weights_bytes=multiplications.bytes + packing.stored_bytes(self._plan, self._document, precision),
            device=where,
        )

    def _lean(self, weights: Weights, device: torch.device) -> Lean:
        """With inputs in the contract's order and, where native code has larger operators, fewer of them."""
        inputs = {item["name"]: item for item in self._document["inputs"]}
        ordered = [inputs[name] for name, _, _ in INPUTS]
        document = {**self._document, "nodes": self._plan.nodes, "inputs": ordered}
        can = device.type == "cpu" and min(self.limits) >= MOST_TOKENS
        return lean(document, self._plan, weights, self.geometry, kernels=pointwise() if can else None)


def read_decoder(directory: Path, program: str | None = None) -> DecoderFile:
    """`program` names one of several; None is the only one, or the one called `model`. Raises ProgramError."""
    return DecoderFile(directory, *load.read_document(directory, program))


def open_decoder(
    directory: Path,
    program: str | None = None,
    *,
    blocks: int,
    cache_dtype: torch.dtype,
    precision: Precision,
    device: str = "cpu",
) -> Decoder:
    """`read_decoder(…).open(…)`."""
    return read_decoder(directory, program).open(
        blocks=blocks, cache_dtype=cache_dtype, precision=precision, device=device
    )


def _symbols(document: Mapping[str, Any]) -> dict[str, str]:
    """The symbol of each size of the contract: T, B, M, L."""
    shapes = {item["name"]: item["shape"] for item in document["inputs"]}
    return {
        axis: str(ex.from_json(size).value)
        for name, _, axes in INPUTS
        for axis, size in zip(axes, shapes[name], strict=True)
        if len(axis) == 1
    }


def _limits(document: Mapping[str, Any]) -> StepSizes:
    symbols = _symbols(document)
    most = [document["symbols"][symbols[letter]]["max"] for letter in "TBML"]
    return StepSizes(*(UNBOUNDED if n is None else n for n in most))


def _names(document: Mapping[str, Any]) -> dict[str, str]:
    """What the sizes of the contract are called in this document."""
    named, _ = sizes_of.of_document(document)
    called = {dimension.symbol: name for name, dimension in named.by_name.items()}
    return {letter: called[symbol] for letter, symbol in _symbols(document).items()}
