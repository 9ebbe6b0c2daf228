"""What transformers itself answers to many prompts: greedy, one after the other, whole continuations."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.decoders import prompts, real

TOKENS = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens`: up to `TOKENS`, the last one an end token if one came. `margins`: by how much each led the second."""

    text: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    margins: tuple[float, ...]


@cache
def reference(name: str) -> tuple[Answer, ...]:
    """Of `smollm2` or `gemma3`, for every prompt of `prompts`. Made once for a machine: some minutes."""
    asked = hashlib.sha256(json.dumps([TOKENS, *prompts.PROMPTS]).encode()).hexdigest()[:8]
    path = real.made(f"{name}-reference-{asked}.json", lambda part: _in_a_process(name, part))
    return tuple(
        Answer(each["text"], tuple(each["prompt"]), tuple(each["tokens"]), tuple(each["margins"]))
        for each in json.loads(path.read_bytes())
    )


def _in_a_process(name: str, path: Path) -> None:
    """A gigabyte of memory, which goes with it."""
    command = [sys.executable, "-c", f"from tests.decoders import reference; reference.write({name!r}, {str(path)!r})"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(real.ROOT)}
    subprocess.run(command, check=True, env=environment)


def write(name: str, path: str) -> None:
    """Ask the model, and write its answers."""
    import torch
    from headway_runtime.export.generate import load

    torch.set_num_threads(1)
    found = load(str(real.gguf(name)), torch.float32)
    Path(path).write_text(json.dumps([_answer(found.model, found.tokenizer, text) for text in prompts.PROMPTS]))


def _answer(model: Any, tokenizer: Any, text: str) -> dict[str, Any]:
    import torch

    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        said = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=TOKENS,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.cat(said.logits).topk(2).values
    return {
        "text": text,
        "prompt": ids[0].tolist(),
        "tokens": said.sequences[0, ids.shape[1] :].tolist(),
        "margins": (best[:, 0] - best[:, 1]).tolist(),
    }
