"""The tokenizers of real models: their tokens as they come are their text."""

import json
import random
import zipfile

import pytest
from headway_runtime.generation.chat import render
from headway_runtime.generation.text import TextStream
from headway_runtime.prepare.decoder import DecoderFacts
from tokenizers import Tokenizer

from tests.decoders.real import gemma3, smollm2

MODELS = {"smollm2": smollm2, "gemma3": gemma3}
TEXTS = [
    "The quick brown fox; 12,345.67 + (a*b)\n\n\tdef f(x):\n        return x",
    "Zürich, naïve, Ærø — “quoted” … ½",
    "你好、世界。こんにちは。안녕하세요",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 \U0001f9ff \U0001faf7",
    "ᚠᛇᚻ ꙮ 𓀀𓁐 ⵣ\u200b\u202e",
    "  two  spaces   three\r\n",
]


def entry(name: str, of: str) -> bytes:
    with zipfile.ZipFile(MODELS[name]()) as archive:
        return archive.read(next(each for each in archive.namelist() if each.endswith(of)))


@pytest.fixture(scope="module", params=MODELS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.from_str(entry(request.param, "extra/tokenizer.json").decode())


def streamed(tokenizer: Tokenizer, tokens: list[int], **other: bool) -> list[str]:
    stream = TextStream(tokenizer, **other)
    return [*(stream.push((token,))[0] for token in tokens), stream.flush()]


def test_texts_come_as_they_are_decoded(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        pieces = streamed(tokenizer, tokens)
        assert "".join(pieces) == tokenizer.decode(tokens)
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)


def test_random_tokens_come_as_they_are_decoded(tokenizer: Tokenizer) -> None:
    walk = random.Random(0)
    size = tokenizer.get_vocab_size()
    bytewise = [
        token for token in (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)) if token is not None
    ]
    bytewise = bytewise or tokenizer.encode("é你👍").ids
    for _ in range(200):
        tokens = [walk.choice(bytewise) if walk.random() < 0.3 else walk.randrange(size) for _ in range(60)]
        for skip in (True, False):
            whole = tokenizer.decode(tokens, skip_special_tokens=skip)
            assert "".join(streamed(tokenizer, tokens, skip_special=skip)) == whole


def test_the_template_of_smollm2_opens_its_answer() -> None:
    said = json.loads(entry("smollm2", "extra/headway.json"))["generation"]
    facts = DecoderFacts(8192, tuple(said["end"]), said["chatTemplate"], said["beginText"], said["endText"])
    assert render(facts, [{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
