"""The record of a decoder: `extra/headway.json`, with its object `generation`."""

from typing import Any

import torch

from headway_runtime.export import facts as facts_
from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate.texts import Texts
from headway_runtime.prepare.decoder import TASK, DecoderFacts

OUTPUT = "logits"
_DIMENSIONS = (
    ("token_ids", 0, "tokens"),
    ("block_tables", 0, "sequences"),
    ("block_tables", 1, "blocks"),
    ("logits_idx", 0, "logits"),
)
_DEFAULTS = {
    "temperature": "temperature",
    "top_k": "topK",
    "top_p": "topP",
    "min_p": "minP",
    "repetition_penalty": "repetitionPenalty",
}


def read(model: Any, texts: Texts) -> DecoderFacts:
    """What a model and its tokenizer say; without golden prompts. Raises ExportError."""
    context = getattr(model.config, "max_position_embeddings", None)
    if type(context) is not int:
        raise ExportError("config.json does not say max_position_embeddings: for how many tokens the model was made")
    return DecoderFacts(
        context=context,
        end=_end(model),
        chat_template=texts.chat_template,
        begin_text=texts.begin,
        end_text=texts.end,
        defaults=_defaults(model),
    )


def document(facts: DecoderFacts) -> dict[str, Any]:
    """The whole record."""
    golden = [{"prompt": list(g.prompt), "tokens": list(g.tokens), "margins": list(g.margins)} for g in facts.golden]
    generation = {
        "context": facts.context,
        "end": list(facts.end),
        "chatTemplate": facts.chat_template,
        "beginText": facts.begin_text or None,
        "endText": facts.end_text or None,
        "defaults": dict(facts.defaults),
        "golden": golden,
    }
    return {
        "torch": torch.__version__.partition("+")[0],
        "device": "cpu",
        "task": TASK,
        "dimensions": [dict(zip(("input", "axis", "name"), named, strict=True)) for named in _DIMENSIONS],
        "outputs": [OUTPUT],
        "generation": {name: value for name, value in generation.items() if value not in (None, {}, [])},
    }


def write(facts: DecoderFacts) -> bytes:
    """The record as it stands in the file. Raises ExportError where a pod would not read it."""
    return facts_.write(document(facts))


def _end(model: Any) -> tuple[int, ...]:
    """Tokens that end an answer: of generation_config.json, else of config.json."""
    for config in (model.generation_config, model.config):
        found = getattr(config, "eos_token_id", None)
        if found is not None:
            return (found,) if isinstance(found, int) else tuple(found)
    return ()


def _defaults(model: Any) -> tuple[tuple[str, float], ...]:
    """What generation_config.json says of sampling, and no more."""
    said = model.generation_config.to_diff_dict()
    return tuple((name, said[key]) for key, name in _DEFAULTS.items() if said.get(key) is not None)
