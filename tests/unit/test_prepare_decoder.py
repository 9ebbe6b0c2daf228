"""What a decoder must keep to be read as one, and what its document then says. Refusals have hostile samples, too."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.export.merge import add_programs
from headway_runtime.prepare import decoding, inspection, repack, report
from headway_runtime.prepare.beside import generation
from headway_runtime.prepare.decoder import DecoderFacts, GoldenPrompt, LayerGeometry
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program import ProgramError, load_program

from tests.decoders import FAMILIES, tiny
from tests.hostile import archives

RECORD = "extra/headway.json"


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> archives.Entries:
    return archives.read(tiny(tmp_path_factory.mktemp("decoder")))


def inspected(
    entries: archives.Entries, folder: Path, change: Callable[[Any], Any], record: str = archives.MODEL
) -> dict[str, Any]:
    path = archives.write(folder / "altered.pt2", archives.altered(entries, change, record))
    return inspection.inspect(str(path)).document


def calls(document: Any) -> list[Any]:
    nodes = document["graph_module"]["graph"]["nodes"]
    return [node for node in nodes if node["target"] == "torch.ops.headway.paged_attention.default"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_is_derived_from_the_calls_of_the_operator(family: str, tmp_path: Path) -> None:
    document = inspection.inspect(str(tiny(tmp_path, family))).document
    geometry, facts = decoding.read(document)
    windows = {"mistral": (24, 24), "gemma3": (24, 0)}.get(family, (0, 0))
    assert geometry.layers == tuple(LayerGeometry(i, 4, 2, 16, window) for i, window in enumerate(windows))
    assert geometry.vocabulary == 384
    assert geometry.bytes_per_token(4) == 2 * (2 * 2 * 16) * 4
    assert facts.context == 512
    assert facts.golden
    assert all(len(golden.margins) == len(golden.tokens) for golden in facts.golden)


def test_sizes_have_names_begin_at_one_and_carry_no_condition(entries: archives.Entries, tmp_path: Path) -> None:
    document = inspected(entries, tmp_path, lambda _: None)
    assert {(name, axis): found for name, axis, found in document["dimensions"]} == {
        ("token_ids", 0): "tokens",
        ("block_tables", 0): "sequences",
        ("block_tables", 1): "blocks",
        ("logits_idx", 0): "logits",
    }
    assert {bounds["min"] for bounds in document["symbols"].values()} == {1}
    assert document["guards"] == []


@pytest.mark.parametrize("least", [0, 1, 2])
def test_the_ranges_that_torch_writes_are_all_taken(least: int, entries: archives.Entries, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        ranges = document["range_constraints"]
        for size, limits in ranges.items():
            limits.update(min_val=least, max_val=4096)
            if "+" in size:  # of query_start_loc, which has an element more
                limits.update(min_val=min(least, 1) + 1, max_val=4097)

    document = inspected(entries, tmp_path, change)
    assert {(bounds["min"], bounds["max"]) for bounds in document["symbols"].values()} == {(1, 4096)}


def test_sizes_that_are_asked_of_the_metadata_are_no_use_of_it(entries: archives.Entries, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        size = copy.deepcopy(next(n for n in nodes if n["target"] == "torch.ops.aten.sym_size.int"))
        size["inputs"][0]["arg"]["as_tensor"]["name"] = "slot_mapping"
        size["outputs"][0]["as_sym_int"]["as_name"] = "another_size"
        nodes.insert(0, size)

    assert decoding.is_decoder(inspected(entries, tmp_path, change))


def test_a_prepared_decoder_holds_no_example_and_is_written_alike_twice(tmp_path: Path) -> None:
    source = tiny(tmp_path)
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        repack.repack(inspection.inspect(str(source)), source, tmp_path / name)
        assert not repack.samples_file(tmp_path / name, "model").exists()
        written.append(repack.program_file(tmp_path / name, "model").read_bytes())
    assert written[0] == written[1]
    assert decoding.read(json.loads(written[0]))[0].vocabulary == 384


def test_the_report_says_what_the_cache_takes(tmp_path: Path) -> None:
    found = report.describe(tiny(tmp_path, "gemma3"))
    assert found.accepted
    program = json.loads(found.to_json())["programs"][0]
    assert program["batch"] is None
    assert program["generation"]["cacheBytesPerToken"] == {"float32": 512, "bfloat16": 256}
    assert [layer["window"] for layer in program["generation"]["layers"]] == [24, 0]
    assert program["generation"]["chatTemplateBytes"] > 0
    page = found.to_text()
    assert "generates text (headway.generate/v1)" in page
    assert "1 layer: 4 heads of 16, 2 of keys and values; sees the last 24 tokens" in page
    assert "cache: 512 bytes a token in float32, 256 in bfloat16" in page
    assert "golden prompts: 12" in page
    assert "requests are joined" not in page
    assert "one request at a time" not in page


def test_every_other_program_says_that_it_generates_nothing(tmp_path: Path) -> None:
    assert json.loads(report.describe(tmp_path / "missing.pt2").to_json()).get("programs") is None
    assert not decoding.is_decoder({"inputs": []})


FULL = {
    "context": 64,
    "end": [1, 2],
    "chatTemplate": "{{ bos_token }}\n\t✓",
    "beginText": "<s>",
    "endText": "</s>",
    "defaults": {"temperature": 0.6, "topK": 20, "topP": 0.95, "minP": 0, "repetitionPenalty": 1.1},
    "golden": [{"prompt": [3, 4], "tokens": [5, 6], "margins": [0.5, 2]}, {"prompt": [3], "tokens": [7]}],
}


def test_all_of_the_field_generation_is_read() -> None:
    assert generation.parse(FULL) == DecoderFacts(
        context=64,
        end=(1, 2),
        chat_template="{{ bos_token }}\n\t✓",
        begin_text="<s>",
        end_text="</s>",
        defaults=(
            ("temperature", 0.6),
            ("topK", 20.0),
            ("topP", 0.95),
            ("minP", 0.0),
            ("repetitionPenalty", 1.1),
        ),
        golden=(GoldenPrompt((3, 4), (5, 6), (0.5, 2.0)), GoldenPrompt((3,), (7,))),
    )


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"hook": 1}, ""),
        ({"context": 1}, "$.context"),
        ({"context": 3}, "$.golden[0]"),
        ({"context": 64.0}, "$.context"),
        ({"end": [-1]}, "$.end"),
        ({"end": [True]}, "$.end"),
        ({"end": list(range(generation.MAX_END + 1))}, "$.end"),
        ({"chatTemplate": "x" * (generation.MAX_TEMPLATE + 1)}, "$.chatTemplate"),
        ({"chatTemplate": "é" * (generation.MAX_TEMPLATE // 2 + 1)}, "$.chatTemplate"),
        ({"chatTemplate": "\0"}, "$.chatTemplate"),
        ({"chatTemplate": "\ud800"}, "$.chatTemplate"),
        ({"chatTemplate": 5}, "$.chatTemplate"),
        ({"beginText": "a\nb"}, "$.beginText"),
        ({"defaults": {"temperature": -1}}, "$.defaults.temperature"),
        ({"defaults": {"topP": 1.5}}, "$.defaults.topP"),
        ({"defaults": {"topK": 2.5}}, "$.defaults.topK"),
        ({"defaults": {"repetitionPenalty": 0}}, "$.defaults.repetitionPenalty"),
        ({"defaults": {"beams": 4}}, "$.defaults"),
        ({"golden": [{"prompt": [1]}]}, "$.golden[0]"),
        ({"golden": [{"prompt": [], "tokens": [1]}]}, "$.golden[0]"),
        ({"golden": [{"prompt": [1], "tokens": []}]}, "$.golden[0]"),
        ({"golden": [{"prompt": [1], "tokens": [1, 2], "margins": [1]}]}, "$.golden[0]"),
        ({"golden": [{"prompt": [1], "tokens": [1], "margins": [-1]}]}, "$.golden[0].margins"),
        ({"golden": [{"prompt": [1], "tokens": [1]}] * (generation.MAX_PROMPTS + 1)}, "$.golden"),
        (
            {
                "context": generation.MAX_CONTEXT,
                "golden": [{"prompt": [1] * generation.MAX_TOKENS, "tokens": [1]}],
            },
            "$.golden[0]",
        ),
    ],
)
def test_every_part_of_it_is_bounded(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(Refusal) as refused:
        generation.parse({**FULL, **changed})
    assert refused.value.rule == "record.form"
    assert refused.value.path == path


def test_a_refusal_says_in_which_record_it_found_what(entries: archives.Entries, tmp_path: Path) -> None:
    def beyond(document: Any) -> None:
        document["generation"]["golden"][2]["tokens"][0] = 384

    with pytest.raises(Refusal) as refused:
        inspected(entries, tmp_path, beyond, RECORD)
    assert (refused.value.rule, refused.value.record) == ("record.generation", RECORD)
    assert refused.value.path == "$.generation.golden[2]"

    def second(document: Any) -> None:
        calls(document)[1]["inputs"][7]["arg"]["as_int"] = 0

    with pytest.raises(Refusal) as refused:
        inspected(entries, tmp_path, second)
    assert (refused.value.rule, refused.value.record) == ("decoder.layers", archives.MODEL)
    assert "numbered [0, 0]" in str(refused.value)


def test_it_is_no_program_for_requests_that_are_answered_at_once(tmp_path: Path) -> None:
    source = tiny(tmp_path)
    repack.repack(inspection.inspect(str(source)), source, tmp_path)
    with pytest.raises(ProgramError, match="policy Continuous") as refused:
        load_program(tmp_path, dimension_names={})
    assert (refused.value.reason, refused.value.field) == ("PolicyMismatch", "spec.batching.policy")


def test_it_is_no_step_of_another_program(tmp_path: Path) -> None:
    module = torch.nn.Linear(4, 4).eval()
    plain = tmp_path / "plain.pt2"
    torch.export.save(torch.export.export(module, (torch.zeros(2, 4),)), plain)
    add_programs(plain, {"chat": tiny(tmp_path)})
    record = {"version": 1, "steps": {"postprocess": "chat"}}
    entries = {**archives.read(plain), RECORD: json.dumps(record).encode(), "extra/tokenizer.json": b"{}"}
    with pytest.raises(Refusal, match="'chat' generates text") as refused:
        inspection.inspect(str(archives.write(plain, entries)))
    assert refused.value.rule == "record.steps"
