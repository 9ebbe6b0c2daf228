"""Tiny decoders with random weights, the same ones every time, and their tokenizer.

The weights are large, so that the likeliest token is so by far and another after other tokens: an error of a cache
changes the answer.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

FAMILIES = ("llama", "qwen3", "mistral", "gemma3")
WINDOW = 24
"""Of Mistral's layers and of every other layer of Gemma."""
CONTEXT = 512

SIZES = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
_TEXT = (
    "The quick brown fox jumps over the lazy dog. Once upon a time there was a model that said what came to its mind. "
    "What is the capital of France? It is Paris. The answer is that nobody knows, and there is no other."
)
_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def tiny(folder: Path, family: str = "llama") -> Path:
    """A `.pt2` of `family` in `folder`: a random decoder with a tokenizer and a chat template. Llama has
    tied weights; Qwen3 norms of queries and keys; Mistral and Gemma sliding windows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_exported(family), folder / f"{family}.pt2"))


def tiny_model(family: str = "llama") -> Any:
    """The model of transformers that `tiny` exports."""
    import torch
    import transformers

    config, model = {
        "llama": (transformers.LlamaConfig(**SIZES, tie_word_embeddings=True), transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config(**SIZES, tie_word_embeddings=False), transformers.Qwen3ForCausalLM),
        "mistral": (transformers.MistralConfig(**SIZES, sliding_window=WINDOW), transformers.MistralForCausalLM),
        "gemma3": (
            transformers.Gemma3TextConfig(
                **SIZES,
                sliding_window=WINDOW,
                layer_types=["sliding_attention", "full_attention"],
                query_pre_attn_scalar=16,
                tie_word_embeddings=False,  # scaled and tied, they would say what they were told
            ),
            transformers.Gemma3ForCausalLM,
        ),
    }[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(FAMILIES.index(family))
        return model(config).eval()


def tiny_tokenizer() -> Any:
    """Byte-level BPE of a few hundred tokens, which can write any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZES["vocab_size"],
        special_tokens=["<|begin|>", "<|end|>", "<|turn|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator([_TEXT], trainer)
    found = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|begin|>", eos_token="<|end|>")
    found.chat_template = _TEMPLATE
    return found


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="headway-tiny-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def _exported(family: str) -> Path:
    from headway_runtime.export.generate import export_decoder

    return export_decoder(tiny_model(family), tiny_tokenizer(), path=_folder() / f"{family}.pt2").path
