"""Export a decoder: ask whether it can be said, trace, record, prove, and only then write."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from headway_api.types import Precision

from headway_runtime.export import merge, proof
from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate import accept, facts, golden, prove, replay, texts
from headway_runtime.export.generate.golden import Answered
from headway_runtime.export.generate.source import Pretrained
from headway_runtime.export.generate.step import trace
from headway_runtime.export.generate.texts import Texts
from headway_runtime.export.model import Exported, finish
from headway_runtime.export.saying import Say, silently
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.decoder import DecoderFacts, DecoderGeometry
from headway_runtime.prepare.programs import DEFAULT
from headway_runtime.program.decoder import StepInputs, open_decoder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Traced:
    """A decoder as a program, with what the record says and what transformers answered."""

    program: torch.export.ExportedProgram
    geometry: DecoderGeometry
    known: DecoderFacts
    words: Texts
    answered: tuple[Answered, ...]
    dtype: torch.dtype


def export_decoder(
    model: Any, tokenizer: Any, *, path: str | Path, draft: Pretrained | None = None, say: Say = silently
) -> Exported:
    """Export a decoder of transformers, in eval mode, with its tokenizer to `path`.

    `draft`: a smaller decoder of the same tokens, which proposes what `model` then checks; it becomes a second program.
    Weights stay what they are, float32 or bfloat16. `say` is told of each phase as it begins. Raises ExportError, and
    leaves `path` as it was.
    """
    path = Path(path)
    parts = {DEFAULT: _traced(model, tokenizer, say)}
    if draft is not None:
        main = parts[DEFAULT]
        texts.check_same(main.words, texts.of(draft.tokenizer))
        parts[DRAFT] = _traced(
            draft.model, draft.tokenizer, lambda text: say(f"the draft: {text}"), main.geometry.vocabulary
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".headway-export-", dir=path.parent) as folder:
        file = Path(folder) / path.name
        say("saving it to a temporary file")
        _save(parts[DEFAULT], file)
        if DRAFT in parts:
            beside = Path(folder) / f"{DRAFT}.pt2"
            _save(parts[DRAFT], beside)
            merge.add_programs(file, {DRAFT: beside})
            beside.unlink()
        say("inspecting and preparing the file, as a pod does")
        with proof.prepared(file) as (_, prepared):
            proofs = [_proven(part, prepared, name, say) for name, part in parts.items()]
        samples = sum(len(part.answered) for part in parts.values())
        largest = max(found.largest_difference for found in proofs)
        return finish(file, path, samples, 2 * samples, largest, _notes(parts))


def _traced(model: Any, tokenizer: Any, say: Say, vocabulary: int | None = None) -> Traced:
    accept.check_model(model)
    accept.check_config(model.config)
    words = texts.of(tokenizer)
    known = facts.read(model, words)
    say(f"tracing a step of {type(model).__name__}, of {model.num_parameters():,} parameters")
    program = trace(model, vocabulary)
    geometry = accept.geometry(program, model.config.num_hidden_layers)
    if words.tokens > geometry.vocabulary:
        raise ExportError(
            f"the tokenizer has {words.tokens:,} tokens and the model {geometry.vocabulary:,}: it is another model's"
        )
    prompts = golden.prompts(tokenizer, words, known.context)
    answered = golden.answer(model, prompts, known.end, say)
    known = replace(known, golden=tuple(one.golden for one in answered))
    return Traced(program, geometry, known, words, tuple(answered), next(model.parameters()).dtype)


def _save(part: Traced, file: Path) -> None:
    extra = {record.NAME: facts.write(part.known), record.TOKENIZER: part.words.tokenizer}
    torch.export.save(
        part.program, file, extra_files={name.removeprefix("extra/"): data.decode() for name, data in extra.items()}
    )


def _proven(part: Traced, prepared: Path, name: str, say: Say) -> prove.Proof:
    """Load and run a program as a pod does. Raises ExportError."""
    say(f"running {len(part.answered)} golden prompts by the file's program {name}, alone and together")
    lengths = [len(one.golden.prompt) + len(one.golden.tokens) for one in part.answered]
    with proof.refused_by_a_pod():
        loaded = open_decoder(
            prepared, name, blocks=replay.blocks(lengths), cache_dtype=part.dtype, precision=Precision.EXPORTED
        )
    return prove.check(lambda **inputs: loaded.step(StepInputs(**inputs)), part.answered)


def _notes(parts: Mapping[str, Traced]) -> list[str]:
    found: list[str] = []
    for name, part in parts.items():
        per_token = part.geometry.bytes_per_token(part.dtype.itemsize)
        layers, vocabulary = len(part.geometry.layers), part.geometry.vocabulary
        found.append(
            f"{name}: {layers} layers, {vocabulary:,} tokens, made for {part.known.context:,} of them at once; keys "
            f"and values of one take {per_token:,} bytes"
        )
        if part.known.chat_template is None:
            found.append(f"{name}: the tokenizer has no chat template, so that it completes texts and does not chat")
        if not part.known.end:
            found.append(f"{name}: no token ends an answer; every one goes on to its limit")
    return found
