"""GGUF files: a tiny one, written here, becomes a decoder; what transformers would misread is refused."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from headway_runtime.export import ExportError
from headway_runtime.export.generate import export_decoder, load
from headway_runtime.export.generate.source import Pretrained

from tests.decoders import tiny_tokenizer

WIDTH, INNER, HEADS, GROUPS, LAYERS = 64, 96, 4, 2, 2
SHAPES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH // HEADS * GROUPS, WIDTH),
    "attn_v": (WIDTH // HEADS * GROUPS, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
    "attn_norm": (WIDTH,),
    "ffn_norm": (WIDTH,),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def written(path: Path, *, without: str = "", more: tuple[str, ...] = ()) -> Path:
    """A Llama of random weights, some of them in eight bits."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    tokens = _add_tokenizer(writer)
    random = np.random.default_rng(3)
    shapes = {f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in SHAPES.items()}
    shapes |= {"token_embd": (tokens, WIDTH), "output_norm": (WIDTH,)} | dict.fromkeys(more, (8,))
    for name, shape in shapes.items():
        if name == without:
            continue
        values = random.normal(1.0 if len(shape) == 1 else 0.0, 0.2, shape).astype(np.float32)
        if name.endswith("ffn_up"):
            eight = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{name}.weight", gguf.quantize(values, eight), raw_dtype=eight)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any) -> int:
    model = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    return len(tokens)


def read(path: Path) -> Pretrained:
    return load(str(path), torch.float32)


def test_a_gguf_file_becomes_a_decoder_with_its_tokenizer(tmp_path: Path) -> None:
    found = read(written(tmp_path / "tiny.gguf"))
    assert (tmp_path / "tiny.pt2") == export_decoder(found.model, found.tokenizer, path=tmp_path / "tiny.pt2").path
    assert found.tokenizer("the lazy dog")["input_ids"] == tiny_tokenizer()("the lazy dog")["input_ids"]
    assert found.model.generation_config.eos_token_id == [1, 2]  # of a text, and of a turn
    assert found.tokenizer.chat_template == "{{ messages[0].content }}"
    up = found.model.model.layers[1].mlp.up_proj.weight
    assert (up.dtype, up.unique().numel() > 1000) == (torch.float32, True)
    assert found.model.lm_head.weight is found.model.model.embed_tokens.weight


def test_weights_that_a_file_lacks_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "tiny.gguf", without="blk.1.ffn_down")
    with pytest.raises(ExportError, match=r"tiny\.gguf lacks weights of the model: model\.layers\.1\.mlp\.down_proj"):
        read(path)


def test_factors_of_a_rope_that_transformers_would_leave_out_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "tiny.gguf", more=("rope_freqs",))
    with pytest.raises(ExportError, match=r"has rope_freqs\.weight, which transformers does not read"):
        read(path)
