"""Nothing is written that was not proven: a program that answers otherwise is found; golden tokens are sure ones."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.export import ExportError
from headway_runtime.export.generate import export_decoder, golden, replay, texts
from headway_runtime.export.generate.golden import SURE, Answered
from headway_runtime.prepare.decoder import BLOCK_TOKENS, GoldenPrompt
from transformers import LlamaForCausalLM

from tests.decoders import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class OtherwiseWhenTraced(LlamaForCausalLM):
    """It has a branch for tracing, as many models have; this one is wrong by a little."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        found = super().forward(*arguments, **named)
        if torch.compiler.is_exporting():
            found.logits = found.logits + 0.01 * torch.arange(found.logits.shape[-1]).remainder(2)
        return found


def test_a_program_that_answers_otherwise_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "out.pt2"
    path.write_bytes(b"what was there")
    model = tiny_model("llama")
    wrong = OtherwiseWhenTraced(model.config).eval()
    wrong.load_state_dict(model.state_dict())
    with pytest.raises(ExportError, match=r"does not answer as transformers does.*logits differ by 0\.01"):
        export_decoder(wrong, tiny_tokenizer(), path=path)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_in_training_or_of_half_precision_is_refused(tmp_path: Path) -> None:
    refused: dict[str, Callable[[], Any]] = {
        r"LlamaForCausalLM is in training mode; call \.eval\(\) on it": lambda: tiny_model("llama").train(),
        r"has weights of float16; give float32, or bfloat16": lambda: tiny_model("llama").half(),
        "Linear is no decoder of transformers": lambda: torch.nn.Linear(2, 2),
        "LlamaModel is no decoder of transformers": lambda: tiny_model("llama").model,
    }
    for why, make in refused.items():
        with pytest.raises(ExportError, match=why):
            export_decoder(make(), tiny_tokenizer(), path=tmp_path / "out.pt2")


def test_golden_continuations_end_before_the_first_token_that_is_not_sure() -> None:
    model, tokenizer = tiny_model("qwen3").to(torch.bfloat16), tiny_tokenizer()
    prompts = golden.prompts(tokenizer, texts.of(tokenizer), 512)
    said: list[str] = []
    answered = golden.answer(model, prompts, [1], said.append)
    count = len(prompts)
    assert said == [f"continuing golden prompts by transformers: {n} of {count}" for n in range(1, count + 1)]
    lengths = [len(one.golden.tokens) for one in answered]
    assert min(lengths) >= 1
    assert min(lengths) < 16  # eight bits are not sure of much
    for one in answered:
        needed = SURE[torch.bfloat16] * one.logits.abs().max().item()
        assert min(one.golden.margins) > needed / 2  # the largest of all logits may be of a token that was left out
        assert one.logits.argmax(-1).tolist() == list(one.golden.tokens)


def test_prompts_that_are_too_long_for_the_model_are_left_out() -> None:
    tokenizer = tiny_tokenizer()
    all_ = golden.prompts(tokenizer, texts.of(tokenizer), 512)
    short = golden.prompts(tokenizer, texts.of(tokenizer), 50)
    assert 0 < len(short) < len(all_)
    assert max(map(len, short)) + golden.TOKENS <= 50


def test_prompts_run_together_in_pieces_that_say_whose_they_are() -> None:
    """A program that notes what it is told: every token of every sequence once, at its place, in a block of its own."""
    prompts = [(1,) * 50, (2,) * 7, (3,) * 24]
    answered = [
        Answered(GoldenPrompt(tokens, (9, 8, 7), (1.0, 1.0, 1.0)), torch.zeros(3, 10), torch.float32)
        for tokens in prompts
    ]
    slots: dict[int, tuple[int, int]] = {}
    most = 0

    def step(**inputs: torch.Tensor) -> torch.Tensor:
        nonlocal most
        starts, lengths = inputs["query_start_loc"].tolist(), inputs["seq_lens"].tolist()
        most = max(most, len(lengths))
        for row, (first, last) in enumerate(itertools.pairwise(starts)):
            places = inputs["positions"][first:last].tolist()
            assert places == list(range(lengths[row] - (last - first), lengths[row]))
            for at, slot in zip(places, inputs["slot_mapping"][first:last].tolist(), strict=True):
                assert inputs["block_tables"][row, at // BLOCK_TOKENS] == slot // BLOCK_TOKENS > 0
                assert slot not in slots
                slots[slot] = (int(inputs["block_tables"][row, 0]), at)
        return torch.zeros(len(inputs["logits_idx"]), 10)

    found = replay.together(step, answered)
    assert [tuple(logits.shape) for logits in found] == [(3, 10)] * 3
    assert len(slots) == sum(len(tokens) + 2 for tokens in prompts)
    assert len(set(slots.values())) == len(slots)
    assert max(slots) < replay.blocks([len(tokens) + 3 for tokens in prompts]) * BLOCK_TOKENS
    assert most == 3
