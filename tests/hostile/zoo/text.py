"""Encoders and decoders of transformers, with random weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import BATCH, ROWS, SEQUENCE, Case

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]])
MASK = (IDS > 0).long()
TEXT = {0: BATCH, 1: SEQUENCE}
SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def model(name: str, config: str, **options: Any) -> nn.Module:
    """A model of transformers by the names of its class and of its configuration's."""
    import transformers

    made: nn.Module = getattr(transformers, name)(getattr(transformers, config)(**options))
    return made.eval()


def encoder(name: str, **options: Any) -> Case:
    make = partial(model, f"{name}Model", f"{name}Config", **{**SMALL, **options})
    dynamic = {"input_ids": TEXT, "attention_mask": TEXT}
    return Case(make, (IDS, MASK), dynamic=dynamic, batches=(1, 3))


def decoder(name: str, **options: Any) -> Case:
    """A language model without a cache: the logits of all positions."""
    own = {"use_cache": False, "num_key_value_heads": 1, "head_dim": 8, **options}
    make = partial(model, f"{name}ForCausalLM", f"{name}Config", **{**SMALL, **own})
    return Case(make, (IDS,), dynamic={"input_ids": TEXT}, batches=(1, 3))


def distilbert() -> nn.Module:
    return model("DistilBertModel", "DistilBertConfig", vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=32)


def gpt2() -> nn.Module:
    options = {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "use_cache": False}
    return model("GPT2LMHeadModel", "GPT2Config", **options)


def t5() -> nn.Module:
    return model("T5EncoderModel", "T5Config", vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)


def bart() -> nn.Module:
    options = {"vocab_size": 50, "d_model": 16, "max_position_embeddings": 64}
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {"layers": 1, "attention_heads": 2, "ffn_dim": 32}.items()
    }
    return model("BartModel", "BartConfig", **options, **sides).get_encoder().eval()


def clip_text() -> nn.Module:
    return model("CLIPTextModel", "CLIPTextConfig", **SMALL, max_position_embeddings=64, eos_token_id=7)


def image_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    sizes = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    return partial(model, f"{name}Model", f"{name}Config", **{**sizes, "image_size": 16, "patch_size": 4, **options})


def image() -> tuple[torch.Tensor, ...]:
    return (torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(5)),)


def swin() -> nn.Module:
    options = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]}
    return model("SwinModel", "SwinConfig", **options, window_size=2)


SENTENCE = Case(t5, (IDS, MASK), dynamic={"input_ids": TEXT, "attention_mask": TEXT}, batches=(1, 3))

PROGRAMS: dict[str, Case] = {
    "bert": encoder("Bert"),
    "roberta": encoder("Roberta", max_position_embeddings=68),
    "deberta_v2": encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "albert": encoder("Albert", embedding_size=8),
    "electra": encoder("Electra", embedding_size=8),
    "mpnet": encoder("MPNet", max_position_embeddings=68),
    "distilbert": Case(distilbert, (IDS, MASK), dynamic=SENTENCE.dynamic, batches=(1, 3)),
    "t5_encoder": SENTENCE,
    "bart_encoder": Case(bart, (IDS, MASK), dynamic=SENTENCE.dynamic, batches=(1, 3)),
    "clip_text": Case(clip_text, (IDS,), dynamic={"input_ids": TEXT}, batches=(1, 3)),
    "clip_vision": Case(image_model("CLIPVision"), image(), dynamic={"pixel_values": ROWS}, batches=(1, 3)),
    "vit_of_transformers": Case(image_model("ViT"), image(), dynamic={"pixel_values": ROWS}, batches=(1, 3)),
    "swin_of_transformers": Case(swin, image(), dynamic={"pixel_values": ROWS}, batches=(1, 3)),
    "gpt2": Case(gpt2, (IDS,), dynamic={"input_ids": TEXT}, batches=(1, 3)),
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", sliding_window=8),
    "gemma": decoder("Gemma"),
    "qwen3": decoder("Qwen3"),
}
