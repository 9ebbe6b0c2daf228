"""Real decoders, dequantised from GGUF and opened as in a pod, say what transformers said when they were exported."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.program.decoder import Decoder, open_decoder

from tests.decoders import gemma3, smollm2
from tests.unit.decoder_steps import greedy, prepared


def opened(source: Path, folder: Path) -> Decoder:
    torch.set_num_threads(1)
    directory = prepared(source, folder)
    return open_decoder(directory, blocks=32, cache_dtype=torch.float32, precision=Precision.EXPORTED)


@pytest.mark.parametrize(
    ("make", "heads", "windows", "chats"),
    [
        pytest.param(smollm2, (9, 3, 64), {0}, True, id="smollm2"),
        pytest.param(gemma3, (4, 1, 256), {0, 512}, False, id="gemma3"),
    ],
)
def test_a_real_decoder_continues_prompts_as_transformers_did(
    make: Callable[[], Path], heads: tuple[int, int, int], windows: set[int], chats: bool, tmp_path: Path
) -> None:
    decoder = opened(make(), tmp_path)
    layers = decoder.geometry.layers
    assert {(layer.heads, layer.kv_heads, layer.head_dim) for layer in layers} == {heads}
    assert {layer.window for layer in layers} == windows
    assert (decoder.facts.chat_template is not None) is chats
    assert len(decoder.facts.golden) >= 8
    for golden in (decoder.facts.golden[1], decoder.facts.golden[5], decoder.facts.golden[-1]):
        assert greedy(decoder, golden.prompt, len(golden.tokens)) == list(golden.tokens)
