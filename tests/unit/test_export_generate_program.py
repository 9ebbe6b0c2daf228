"""A traced decoder, run by torch over a paged cache, against the logits of transformers' own forward."""

import itertools
import random
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from headway_runtime.export import ExportError
from headway_runtime.export.generate import accept, operator
from headway_runtime.export.generate.step import trace
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.prepare.decoder import INPUTS, DecoderGeometry

from tests.decoders import FAMILIES, tiny, tiny_model
from tests.decoders.random import SIZES, WINDOW
from tests.unit.decoder_steps import Part, step

Program = Callable[..., torch.Tensor]
VOCABULARY = SIZES["vocab_size"]
BLOCKS = 64
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@cache
def traced(family: str) -> tuple[Any, Program, DecoderGeometry]:
    """The model of transformers, the program as torch runs it, and the cache that it needs."""
    model = tiny_model(family)
    program = trace(model)
    return model, program.module(), accept.geometry(program, model.config.num_hidden_layers)


def cached(geometry: DecoderGeometry) -> PagedCache:
    return PagedCache(geometry, blocks=BLOCKS, dtype=torch.float32)


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=count)


def truth(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """float32 [tokens, V], all at once and with masks, as transformers does it."""
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([list(tokens)])).logits[0]
    return found


def run(program: Program, parts: Sequence[Part], wanted: Sequence[int]) -> torch.Tensor:
    names = [name for name, _, _ in INPUTS]
    return program(**dict(zip(names, step(parts, logits=wanted), strict=True)))


def in_pieces(program: Program, cache_: PagedCache, tokens: list[int], cuts: Sequence[int]) -> torch.Tensor:
    """The logits of all tokens, given in pieces that end at `cuts`."""
    blocks = random.Random(7).sample(range(1, BLOCKS), -(-len(tokens) // 16))
    with operator.bound(cache_), torch.no_grad():
        pieces = [
            run(program, [(tokens[:end], done, blocks)], range(end - done))
            for done, end in itertools.pairwise([0, *cuts, len(tokens)])
        ]
    return torch.cat(pieces)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("piece", [1, 7, 16, 100])
def test_the_logits_are_those_of_transformers_in_pieces_of_any_size(family: str, piece: int) -> None:
    model, program, geometry = traced(family)
    tokens = tokens_of(100)
    found = in_pieces(program, cached(geometry), tokens, range(piece, 100, piece))
    torch.testing.assert_close(found, truth(model, tokens), **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_that_share_a_step_do_not_hear_each_other(family: str) -> None:
    model, program, geometry = traced(family)
    texts = [tokens_of(count, seed) for seed, count in enumerate([50, 40, 33, 1])]
    place = random.Random(1).sample(range(1, BLOCKS), 16)
    blocks = [place[4 * n : 4 * n + 4] for n in range(4)]
    first = [(texts[0][:49], 0, blocks[0]), (texts[1][:16], 0, blocks[1])]
    second = [  # the last token of one, the rest of another, two new ones
        (texts[0], 49, blocks[0]),
        (texts[1], 16, blocks[1]),
        (texts[2], 0, blocks[2]),
        (texts[3], 0, blocks[3]),
    ]
    with operator.bound(cached(geometry)), torch.no_grad():
        run(program, first, [0])
        found = run(program, second, [0, 24, 57, 58])
    wanted = torch.stack([truth(model, text)[-1] for text in texts])
    torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_a_layer_with_a_window_forgets_what_lies_before_it(family: str) -> None:
    model, program, geometry = traced(family)
    assert [layer.window for layer in geometry.layers] == ([WINDOW, WINDOW] if family == "mistral" else [WINDOW, 0])
    far = [5, *tokens_of(3 * WINDOW)]
    other = [6, *far[1:]]
    found = [in_pieces(program, cached(geometry), tokens, [20, 40])[-1] for tokens in (far, other)]
    hears = not torch.allclose(*found, rtol=0, atol=1e-6)
    assert hears is (family == "gemma3")  # its other layer sees everything
    torch.testing.assert_close(found[0], truth(model, far)[-1], **CLOSE)


PLAIN = {name: value for name, value in SIZES.items() if name != "head_dim"}
ROPE = {"rope_theta": 10000.0, "original_max_position_embeddings": 64, "factor": 8.0}
LLAMA3 = {**ROPE, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CAPPED = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 9}
DIFFERENT: dict[str, Callable[[], Any]] = {
    "llama3 rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "yarn rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters={**ROPE, "rope_type": "yarn"}),
    "biases": lambda: transformers.Qwen2Config(**PLAIN),
    "caps, a scale, a window": lambda: transformers.Gemma2Config(**SIZES, **CAPPED, sliding_window=WINDOW),
    "multipliers": lambda: transformers.GraniteConfig(**PLAIN, attention_multiplier=0.3, logits_scaling=2.0),
    "learned positions": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, initializer_range=0.2
    ),
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_what_families_do_differently_is_in_the_program(difference: str) -> None:
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(DIFFERENT[difference]()).eval()
    program = trace(model)
    geometry = accept.geometry(program, 2)
    tokens = tokens_of(90)
    found = in_pieces(program.module(), cached(geometry), tokens, [33, 34, 70])
    torch.testing.assert_close(found, truth(model, tokens), **CLOSE)


def test_bfloat16_gives_float32_logits_of_the_same_model() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    program = trace(model)
    geometry = accept.geometry(program, 2)
    tokens = tokens_of(60)
    cache_ = PagedCache(geometry, blocks=BLOCKS, dtype=torch.bfloat16)
    found = in_pieces(program.module(), cache_, tokens, [31])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, truth(model, tokens).float(), rtol=0, atol=0.2)


def test_a_model_is_as_it_was_after_it_was_traced() -> None:
    model = tiny_model("llama")
    before = model.config._attn_implementation
    trace(model)
    assert model.config._attn_implementation == before != "headway_paged"


def test_logits_become_as_many_as_the_target_of_a_draft_has() -> None:
    model = tiny_model("llama")
    tokens = tokens_of(20)
    for wanted in (VOCABULARY - 80, VOCABULARY + 50):
        program = trace(model, wanted)
        geometry = accept.geometry(program, 2)
        assert geometry.vocabulary == wanted
        found = in_pieces(program.module(), cached(geometry), tokens, [])
        both = min(wanted, VOCABULARY)
        torch.testing.assert_close(found[:, :both], truth(model, tokens)[:, :both], **CLOSE)
        assert (found[:, both:] == float("-inf")).all()


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    size = VOCABULARY * SIZES["hidden_size"] * 4
    for family, tables in (("llama", 1), ("qwen3", 2)):
        with zipfile.ZipFile(tiny(tmp_path, family)) as archive:
            weights = [item for item in archive.infolist() if "/data/weights/weight_" in item.filename]
        assert [item.file_size for item in weights].count(size) == tables


def test_attention_that_is_more_than_causal_is_refused_by_name() -> None:
    class Sinking(transformers.LlamaForCausalLM):
        """Its attention has a further argument, as that of gpt-oss."""

        def forward(self, *arguments: Any, **named: Any) -> Any:
            return super().forward(*arguments, **named, s_aux=torch.zeros(4))

    with pytest.raises(ExportError, match=r"LlamaAttention \(layer 0\) asks of its attention s_aux"):
        trace(Sinking(tiny_model("llama").config).eval())
