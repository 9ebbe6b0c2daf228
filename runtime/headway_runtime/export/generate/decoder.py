"""Export a decoder: ask whether it can be said, trace, record, prove, and only then write."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headway_runtime.export import merge
from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate import accept, facts, golden, operator, prove, replay, texts
from headway_runtime.export.generate.golden import Answered
from headway_runtime.export.generate.source import Decoder
from headway_runtime.export.generate.step import trace
from headway_runtime.export.generate.texts import Texts
from headway_runtime.export.model import Exported, finish
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.decoder import DecoderFacts, DecoderGeometry
from headway_runtime.prepare.programs import DEFAULT

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


def export_decoder(model: Any, tokenizer: Any, *, path: str | Path, draft: Decoder | None = None) -> Exported:
    """Export a decoder of transformers, in eval mode, with its tokenizer to `path`.

    `draft`: a smaller decoder of the same tokens, which proposes what `model` then checks; it becomes a second program.
    Weights stay what they are, float32 or bfloat16. Raises ExportError, and leaves `path` as it was.
    """
    path = Path(path)
    parts = {DEFAULT: _traced(model, tokenizer)}
    if draft is not None:
        main = parts[DEFAULT]
        texts.check_same(main.words, texts.of(draft.tokenizer))
        parts[DRAFT] = _traced(draft.model, draft.tokenizer, main.geometry.vocabulary)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".headway-export-", dir=path.parent) as folder:
        file = Path(folder) / path.name
        _save(parts[DEFAULT], file)
        if DRAFT in parts:
            beside = Path(folder) / f"{DRAFT}.pt2"
            _save(parts[DRAFT], beside)
            merge.add_programs(file, {DRAFT: beside})
            beside.unlink()
        proofs = {name: _proven(part) for name, part in parts.items()}
        samples = sum(len(part.answered) for part in parts.values())
        largest = max(proof.largest_difference for proof in proofs.values())
        return finish(file, path, samples, 2 * samples, largest, _notes(parts, proofs))


def _traced(model: Any, tokenizer: Any, vocabulary: int | None = None) -> Traced:
    accept.check_model(model)
    accept.check_config(model.config)
    words = texts.of(tokenizer)
    known = facts.read(model, words)
    program = trace(model, vocabulary)
    geometry = accept.geometry(program, model.config.num_hidden_layers)
    if words.tokens > geometry.vocabulary:
        raise ExportError(
            f"the tokenizer has {words.tokens:,} tokens and the model {geometry.vocabulary:,}: it is another model's"
        )
    answered = golden.answer(model, golden.prompts(tokenizer, words, known.context), known.end)
    known = replace(known, golden=tuple(one.golden for one in answered))
    return Traced(program, geometry, known, words, tuple(answered), next(model.parameters()).dtype)


def _save(part: Traced, file: Path) -> None:
    extra = {record.NAME: facts.write(part.known), record.TOKENIZER: part.words.tokenizer}
    torch.export.save(
        part.program, file, extra_files={name.removeprefix("extra/"): data.decode() for name, data in extra.items()}
    )


def _proven(part: Traced) -> prove.Proof:
    """Run the program with a cache of its own. Raises ExportError."""
    lengths = [len(one.golden.prompt) + len(one.golden.tokens) for one in part.answered]
    cache = PagedCache(part.geometry, blocks=replay.blocks(lengths), dtype=part.dtype)
    step = part.program.module()
    with operator.bound(cache), torch.no_grad():
        return prove.check(step, part.answered, part.dtype)


def _notes(parts: Mapping[str, Traced], proofs: Mapping[str, prove.Proof]) -> list[str]:
    found: list[str] = []
    for name, part in parts.items():
        per_token = part.geometry.bytes_per_token(part.dtype.itemsize)
        layers, vocabulary = len(part.geometry.layers), part.geometry.vocabulary
        found.append(
            f"{name}: {layers} layers, {vocabulary:,} tokens, made for {part.known.context:,} of them at once; keys "
            f"and values of one take {per_token:,} bytes"
        )
        unsure = proofs[name].unsure
        if unsure:
            found.append(f"{name}: {unsure} golden tokens differ where transformers was not sure itself")
        if part.known.chat_template is None:
            found.append(f"{name}: the tokenizer has no chat template, so that it completes texts and does not chat")
        if not part.known.end:
            found.append(f"{name}: no token ends an answer; every one goes on to its limit")
    return found
