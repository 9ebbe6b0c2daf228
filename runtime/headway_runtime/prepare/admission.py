"""Is the prepared program what the rest of the cold configuration is written for? Pure; asked by the prepare step, as
early as it can be known, and again by the process that serves.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headway_api.podconfig import ColdBatching, ColdConfig, ColdGeneration
from headway_api.types import BatchingPolicy, DeviceKind, Precision, SpeculationMethod

from headway_runtime.errors import FatalError
from headway_runtime.prepare import decoding, repack
from headway_runtime.prepare.budget import ELEMENT_BYTES, never_fits
from headway_runtime.prepare.room import Room

POLICY_FIELD = "spec.batching.policy"
DYNAMIC_ONLY = ("shape_buckets", "dimensions", "padding", "oversize", "instances")
_LEAST_SHARE = {Precision.EXPORTED: 1.0, Precision.BFLOAT16: 0.5, Precision.INT8: 0.25}
"""Of the exported weights, what they take at least: those of an embedding stay as they are."""


def admit(config: ColdConfig, directory: Path, program: str, *, weights: int, room: Room) -> None:
    """Hold a prepared directory against the configuration. `weights`: bytes of all its programs.

    Raises FatalError: `PolicyMismatch`, `WillNotFit`.
    """
    document: dict[str, Any] = json.loads(repack.program_file(directory, program).read_bytes())
    check_policy(config, document)
    check_draft(config, repack.program_names(directory))
    if not decoding.is_decoder(document) or config.device.kind is not DeviceKind.CPU:
        return
    asked = config.generation
    refused = never_fits(
        asked,
        weights=int(weights * _LEAST_SHARE[config.precision]),
        bytes_per_token=bytes_per_token(asked, document),
        room=room,
    )
    if refused is not None:
        raise refused


def bytes_per_token(asked: ColdGeneration, *documents: Mapping[str, Any]) -> int:
    """Keys and values of one token in all layers of these decoders, in the cache's element type."""
    size = ELEMENT_BYTES[asked.cache_type]
    return sum(decoding.read(document)[0].bytes_per_token(size) for document in documents)


def check_policy(config: ColdConfig, document: Mapping[str, Any]) -> None:
    """Does the batcher that is asked for run this program? Raises FatalError `PolicyMismatch`, naming the field."""
    policy = config.batching.policy
    if decoding.is_decoder(document):
        if policy is BatchingPolicy.DYNAMIC:
            raise _mismatch(
                POLICY_FIELD,
                "Dynamic, and this artifact was exported to generate text: write policy: Continuous, or leave it out",
            )
        _check_unused(config.batching)
        return
    if policy is BatchingPolicy.CONTINUOUS:
        raise _mismatch(
            POLICY_FIELD,
            "Continuous, and this artifact was not exported to generate text: write policy: Dynamic, or leave it out, "
            "or export it with --task generate",
        )
    usual = ColdGeneration()
    for name in ColdGeneration.model_fields:
        if getattr(config.generation, name) != getattr(usual, name):
            raise _mismatch(
                f"spec.generation.{_written(ColdGeneration, name)}",
                "it is set, and this artifact was not exported to generate text: remove it, or export it with "
                "--task generate",
            )


def draft_of(config: ColdConfig) -> str | None:
    """The program that proposes tokens, if one does."""
    speculation = config.generation.speculation
    return speculation.program if speculation and speculation.method is SpeculationMethod.DRAFT else None


def check_draft(config: ColdConfig, programs: Collection[str]) -> None:
    """Is there a program to propose tokens, where one is asked for? Raises FatalError `UnknownProgram`."""
    draft, field = draft_of(config), "spec.generation.speculation.method"
    if draft is not None and draft not in programs:
        raise FatalError(
            "UnknownProgram",
            f"{field}: Draft, and the artifact holds {', '.join(sorted(programs))}, but no program {draft!r} to "
            "propose tokens: export it with --draft SOURCE, name the program that is meant (speculation.program), or "
            "write method: PromptLookup, which needs none",
            condition="ArtifactVerified",
            field=field,
        )


def _check_unused(batching: ColdBatching) -> None:
    usual = ColdBatching()
    for name in DYNAMIC_ONLY:
        if getattr(batching, name) != getattr(usual, name):
            raise _mismatch(
                f"spec.batching.{_written(ColdBatching, name)}",
                "it is set, and this artifact generates text: sequences of all lengths are joined without buckets or "
                "padding; remove it",
            )


def _written(model: type[ColdBatching] | type[ColdGeneration], name: str) -> str:
    return str(model.model_fields[name].alias or name)


def _mismatch(field: str, what: str) -> FatalError:
    return FatalError("PolicyMismatch", f"{field}: {what}", condition="Accepted", field=field)
