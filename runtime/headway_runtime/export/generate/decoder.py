"""Export a decoder: read, trace, record, prove, and only then write."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway_runtime.export.generate import facts, golden, texts
from headway_runtime.export.generate.step import trace
from headway_runtime.export.model import Exported, finish
from headway_runtime.prepare.beside import record


def export_decoder(model: Any, tokenizer: Any, *, path: str | Path) -> Exported:
    """Export a decoder of transformers with its tokenizer to `path`.

    Raises ExportError, and leaves `path` as it was.
    """
    path = Path(path)
    words = texts.of(tokenizer)
    known = facts.read(model, words)
    answered = golden.answer(model, golden.prompts(tokenizer, words), known.end)
    known = replace(known, golden=tuple(one.golden for one in answered))
    program = trace(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".headway-export-", dir=path.parent) as folder:
        file = Path(folder) / path.name
        extra = {record.NAME: facts.write(known), record.TOKENIZER: words.tokenizer}
        torch.export.save(
            program, file, extra_files={name.removeprefix("extra/"): data.decode() for name, data in extra.items()}
        )
        return finish(file, path, len(answered), 0, 0.0, ())
