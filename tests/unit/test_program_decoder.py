"""An open decoder: its steps, its weights, and what it will need before it is open."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.export.merge import add_programs
from headway_runtime.prepare import repack
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.program import ProgramError, ShapeError
from headway_runtime.program.decoder import Decoder, DecoderFile, StepSizes, open_decoder, read_decoder
from headway_runtime.program.errors import OutputError

from tests.decoders import FAMILIES, tiny
from tests.unit.decoder_steps import greedy, prepared, step

VOCABULARY, WIDTH = 384, 64


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    return prepared(tiny(folder), folder / "prepared")


@pytest.fixture(scope="module")
def decoder(llama: Path) -> Decoder:
    return opened(llama)


def opened(directory: Path, precision: Precision = Precision.EXPORTED, **more: Any) -> Decoder:
    return open_decoder(directory, blocks=128, cache_dtype=torch.float32, precision=precision, **more)


def altered(source: Path, folder: Path, **changes: Any) -> DecoderFile:
    """The prepared decoder with other claims in its document."""
    document = {**json.loads(repack.program_file(source, "model").read_bytes()), **changes}
    (folder / repack.PROGRAMS).mkdir()
    repack.program_file(folder, "model").write_text(json.dumps(document))
    (folder / repack.WEIGHTS).write_bytes((source / repack.WEIGHTS).read_bytes())
    return read_decoder(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_continues_the_golden_prompts_as_transformers_did(family: str, tmp_path: Path) -> None:
    decoder = opened(prepared(tiny(tmp_path, family), tmp_path / "prepared"))
    assert len(decoder.facts.golden) > 4
    for golden in decoder.facts.golden:
        assert greedy(decoder, golden.prompt, len(golden.tokens)) == list(golden.tokens)


def test_sequences_of_one_step_do_not_see_each_other(decoder: Decoder) -> None:
    """A prompt, a chunk of another and one more token of a third: as if each were alone."""
    first, second, third = ([(7 * n + k) % VOCABULARY for n in range(40)] for k in (1, 2, 3))
    alone = [decoder.step(step([(tokens, 0, range(1, 4))])) for tokens in (first, second[:30], third)]
    decoder.step(step([(second[:11], 0, [5, 9, 3]), (third[:39], 0, [8, 2, 7])]))
    together = decoder.step(step([(first, 0, [1, 4, 6]), (second[:30], 11, [5, 9, 3]), (third, 39, [8, 2, 7])]))
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-4)


def test_logits_are_those_of_the_tokens_that_are_named(decoder: Decoder) -> None:
    tokens = list(range(20, 40))
    every = decoder.step(step([(tokens, 0, [1, 2])], logits=range(20)))
    some = decoder.step(step([(tokens, 0, [1, 2])], logits=[19, 3]))
    assert every.shape == (20, VOCABULARY)
    assert every.dtype == torch.float32
    torch.testing.assert_close(some, every[[19, 3]], rtol=1e-5, atol=1e-5)


def test_a_copied_block_is_as_good_as_the_first(decoder: Decoder) -> None:
    tokens = list(range(30, 60))
    decoder.step(step([(tokens, 0, [1, 2])]))
    decoder.copy([(1, 11), (2, 12)])
    told = [decoder.step(step([([*tokens, 5], 30, blocks)])) for blocks in ([1, 2], [11, 12])]
    assert torch.equal(*told)


def test_it_runs_in_inference_mode_with_or_without_its_caller(decoder: Decoder) -> None:
    found = decoder.step(step([([1, 2, 3], 0, [1])]))
    with torch.inference_mode():
        again = decoder.step(step([([1, 2, 3], 0, [1])]))
    assert found.is_inference()
    assert torch.equal(found, again)


def test_tied_weights_are_packed_once_and_their_rows_are_kept_beside(llama: Path) -> None:
    file = read_decoder(llama)
    planned = file._plan
    (table,) = planned.tables
    rows = {row["value"]: row for row in file._document["weights"]}
    assert sum(rows[value]["offset"] == rows[table]["offset"] for value in planned.weights) == 1
    table_numbers = VOCABULARY * WIDTH
    matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + table_numbers
    others = WIDTH * 4 + 8 * 4  # norms (all ones, stored once), frequencies
    for precision, bytes_ in ((Precision.EXPORTED, 4), (Precision.BFLOAT16, 2), (Precision.INT8, 1)):
        least = bytes_ * (matrices + table_numbers) + others
        assert least <= file.weights_bytes(precision) <= 1.25 * least  # columns of 32 and 96 fill strips of 64


@pytest.mark.parametrize("precision", list(Precision))
def test_what_it_says_of_its_weights_is_what_they_take(precision: Precision, llama: Path) -> None:
    assert read_decoder(llama).weights_bytes(precision) == opened(llama, precision).weights_bytes


@pytest.mark.parametrize(("precision", "right"), [(Precision.BFLOAT16, 0.9), (Precision.INT8, 0.75)])
def test_smaller_weights_answer_almost_alike(precision: Precision, right: float, llama: Path) -> None:
    """Random weights leave narrow margins: most of the first tokens agree all the same."""
    decoder = opened(llama, precision)
    first = [greedy(decoder, golden.prompt, 1) == list(golden.tokens[:1]) for golden in decoder.facts.golden]
    assert sum(first) >= right * len(first)


def test_it_says_what_a_step_will_take(llama: Path) -> None:
    file = read_decoder(llama)
    small = file.step(StepSizes(tokens=1, sequences=1, blocks=1, logits=1))
    large = file.step(StepSizes(tokens=512, sequences=4, blocks=64, logits=1))
    wide = file.step(StepSizes(tokens=512, sequences=4, blocks=64, logits=512))
    assert small.peak >= VOCABULARY * 4
    assert large.peak >= 512 * WIDTH * 4 * 3, "what goes around a block, and what is in it"
    assert wide.peak >= 512 * VOCABULARY * 4
    assert small.peak < large.peak < wide.peak


def test_a_step_beyond_what_it_was_exported_for_is_refused(llama: Path, tmp_path: Path) -> None:
    document = json.loads(repack.program_file(llama, "model").read_bytes())
    for bounds in document["symbols"].values():
        bounds["max"] = 16
    file = altered(llama, tmp_path, symbols=document["symbols"])
    assert file.limits == StepSizes(16, 16, 16, 16)
    decoder = file.open(blocks=4, cache_dtype=torch.float32, precision=Precision.EXPORTED)
    assert decoder.step(step([(range(16), 0, [1])])).shape == (1, VOCABULARY)
    with pytest.raises(ShapeError, match="tokens=17"):
        decoder.step(step([(range(17), 0, [1, 2])]))


def test_a_file_that_lies_about_its_heads_is_found_out(llama: Path, tmp_path: Path) -> None:
    document = json.loads(repack.program_file(llama, "model").read_bytes())
    document["decoder"]["layers"][1]["kvHeads"] = 1
    file = altered(llama, tmp_path, decoder=document["decoder"])
    with pytest.raises(ProgramError, match=r"k is \[8, 2, 16\] where the file says \[8, 1, 16\]") as refused:
        file.step(StepSizes(8, 1, 1, 1))
    assert refused.value.reason == "ShapeMismatch"
    decoder = file.open(blocks=4, cache_dtype=torch.float32, precision=Precision.EXPORTED)
    with pytest.raises(RuntimeError, match="k is"):
        decoder.step(step([([1, 2], 0, [1])]))


def test_a_file_that_lies_about_its_vocabulary_is_found_out(llama: Path, tmp_path: Path) -> None:
    document = json.loads(repack.program_file(llama, "model").read_bytes())
    document["outputs"][0]["shape"][1] = document["decoder"]["vocabulary"] = VOCABULARY + 1
    file = altered(llama, tmp_path, outputs=document["outputs"], decoder=document["decoder"])
    with pytest.raises(ProgramError, match="the file declares output logits") as refused:
        file.step(StepSizes(8, 1, 1, 1))
    assert refused.value.reason == "ShapeMismatch"
    decoder = file.open(blocks=4, cache_dtype=torch.float32, precision=Precision.EXPORTED)
    with pytest.raises(OutputError, match="logits are"):
        decoder.step(step([([1, 2], 0, [1])]))


def test_a_token_or_a_slot_that_is_not_there_raises(decoder: Decoder) -> None:
    good = step([([1, 2], 0, [1])])
    with pytest.raises((IndexError, RuntimeError)):
        decoder.step(good._replace(token_ids=torch.tensor([1, VOCABULARY])))
    with pytest.raises(RuntimeError, match="slot"):
        decoder.step(good._replace(slot_mapping=torch.tensor([1, 128 * BLOCK_TOKENS])))


def test_a_draft_of_the_same_archive_is_opened_by_its_name(tmp_path: Path) -> None:
    both = tiny(tmp_path, "llama")
    add_programs(both, {"draft": tiny(tmp_path, "qwen3")})
    directory = prepared(both, tmp_path / "prepared")
    alone = {name: prepared(tiny(tmp_path / name, family), tmp_path / name) for name, family in
             (("model", "llama"), ("draft", "qwen3"))}  # fmt: skip
    prompt = list(range(10, 30))
    answers = [greedy(opened(directory, program=name), prompt, 8) for name in (None, "draft")]
    assert answers == [greedy(opened(alone[name]), prompt, 8) for name in ("model", "draft")]
    assert answers[0] != answers[1]


def test_a_program_that_generates_nothing_is_no_decoder(tmp_path: Path) -> None:
    module = torch.nn.Linear(4, 4).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(2, 4),)), tmp_path / "plain.pt2")
    directory = prepared(tmp_path / "plain.pt2", tmp_path / "prepared")
    with pytest.raises(ProgramError, match="generates no text") as refused:
        read_decoder(directory)
    assert (refused.value.reason, refused.value.field) == ("PolicyMismatch", "spec.batching.policy")
