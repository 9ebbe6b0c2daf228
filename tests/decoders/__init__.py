"""Decoders for tests of text generation, as ``.pt2`` files: tiny ones with random weights, and real ones.

    tiny(tmp_path, "llama")     two layers, made anew in a second
    smollm2(), gemma3()         made once for a machine, in ~/.cache/headway
    reference.reference("smollm2")    what transformers itself answers to sixty prompts

Nothing is imported or made before it is asked for.
"""

from tests.decoders.random import FAMILIES, tiny, tiny_model, tiny_tokenizer
from tests.decoders.real import gemma3, gguf, smollm2

__all__ = ["FAMILIES", "gemma3", "gguf", "smollm2", "tiny", "tiny_model", "tiny_tokenizer"]
