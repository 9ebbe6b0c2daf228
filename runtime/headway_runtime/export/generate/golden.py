"""Golden prompts: what transformers itself continues them with, greedily, as far as it is sure.

Two sums of the same numbers differ in their last bits, and a choice between two tokens that are almost as likely goes
the other way. Such a token would prove nothing, and a pod that says the other one is no worse: a golden continuation
ends before it, and a pod must say all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate.texts import Texts
from headway_runtime.export.saying import Say, silently
from headway_runtime.prepare.decoder import GoldenPrompt

TOKENS = 16
"""Of each continuation; fewer where an end token comes first, or one that is not sure."""
SURE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Of the largest logit: a token is sure that leads by more. About three times the lead of the surest token that two
implementations were seen to differ in (SmolLM2-135M; bfloat16 has eight bits).
"""
_LONG = (
    "Water boils at a temperature that depends on the pressure of the air around it. At the level of the sea it boils "
    "at one hundred degrees Celsius; on the top of a high mountain, where the air is thin, it boils at less. A cook "
    "who prepares a meal up there has to wait longer, because the water, though it boils, is not as hot. In a pressure "
    "cooker it is the other way round: the lid keeps the steam in, the pressure rises, and therefore"
)
PROMPTS = (
    "The",
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "1, 2, 4, 8, 16, 32,",
    "Die Hauptstadt von Österreich heißt",
    "Q: How many legs does a spider have?\nA:",
    '{"name": "Ada Lovelace", "born": 1815, "languages": ["English",',
    "东京是日本的首都。巴黎是",
    _LONG,
)
CHATS = ("What is gravity? Answer in one sentence.", "Write a haiku about autumn.")


@dataclass(frozen=True, slots=True)
class Answered:
    """`logits`: float32 [tokens, V], of which each token was the largest. `dtype`: of the weights."""

    golden: GoldenPrompt
    logits: torch.Tensor
    dtype: torch.dtype


def prompts(tokenizer: Any, texts: Texts, context: int) -> list[tuple[int, ...]]:
    """Tokens of all prompts, as a request would have them; those of a chat through the template, where there is one.
    What is too long for `context` tokens is left out.
    """
    found = [tuple(tokenizer(text)["input_ids"]) for text in PROMPTS]
    if texts.chat_template is not None:
        for text in CHATS:
            said = [{"role": "user", "content": text}]
            rendered = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
            found.append(tuple(tokenizer(rendered, add_special_tokens=False)["input_ids"]))
    return [tokens for tokens in found if 0 < len(tokens) <= context - TOKENS]


def answer(model: Any, prompts_: Sequence[tuple[int, ...]], end: Sequence[int], say: Say = silently) -> list[Answered]:
    """Continue every prompt alone, by `generate` of transformers. What the model says of sampling is left out. `say`
    is told before each.

    Raises ExportError where it is sure of nothing.
    """
    from transformers import GenerationConfig

    kept = model.generation_config
    model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=TOKENS, eos_token_id=list(end) or None, pad_token_id=0
    )
    try:
        found = []
        for number, prompt in enumerate(prompts_, 1):
            say(f"continuing golden prompts by transformers: {number} of {len(prompts_)}")
            found.append(_continued(model, prompt))
    finally:
        model.generation_config = kept
    sure = [one for one in found if one.golden.tokens]
    if not sure:
        raise ExportError(f"of {len(found)} golden prompts the model is sure of no continuation, so nothing is proven")
    return sure


def _continued(model: Any, prompt: tuple[int, ...]) -> Answered:
    ids = torch.tensor([prompt], dtype=torch.int64)
    with torch.no_grad():
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True
        )
    logits = torch.cat(found.logits)  # float32 [tokens, V], whatever the weights are
    best = logits.topk(2).values  # [tokens, 2]
    margins = (best[:, 0] - best[:, 1]).tolist()
    needed = SURE[model.dtype] * logits[torch.isfinite(logits)].abs().max().item()
    sure = next((n for n, margin in enumerate(margins) if margin <= needed), len(margins))
    tokens = found.sequences[0, len(prompt) : len(prompt) + sure].tolist()
    return Answered(GoldenPrompt(prompt, tuple(tokens), tuple(margins[:sure])), logits[:sure], model.dtype)
