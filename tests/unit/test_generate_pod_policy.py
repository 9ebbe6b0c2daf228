"""Which batcher runs which artifact, and which fields belong to which: from the prepared document, and by the prepare
step itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from headway_api.podconfig import ColdConfig
from headway_runtime.errors import FatalError
from headway_runtime.prepare import __main__ as prepare_step
from headway_runtime.prepare.admission import bytes_per_token, check_draft, check_policy
from headway_runtime.prepare.room import Room

from tests.decoders import tiny

LAYER = {"heads": 4, "kvHeads": 2, "headDim": 8, "window": 0}
DECODER: dict[str, Any] = {
    "decoder": {"layers": [{"layer": 0, **LAYER}, {"layer": 1, **LAYER}], "vocabulary": 100},
    "generation": {"context": 64, "end": [0]},
}
OTHER: dict[str, Any] = {"nodes": []}


def config(**parts: Any) -> ColdConfig:
    cold: dict[str, Any] = {
        "model": "m",
        "namespace": "n",
        "revision": "0a1b2c3d",
        "artifact": {"uri": "file:///m.pt2"},
    }
    return ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}, **parts})


@pytest.mark.parametrize("policy", [None, "Continuous"])
def test_a_decoder_is_served_continuously(policy: str | None) -> None:
    check_policy(config(batching={"policy": policy}, generation={"maxLength": 64}), DECODER)


@pytest.mark.parametrize("policy", [None, "Dynamic"])
def test_any_other_program_is_served_dynamically(policy: str | None) -> None:
    check_policy(config(batching={"policy": policy, "shapeBuckets": {"batch": [1]}}), OTHER)


@pytest.mark.parametrize(
    ("document", "parts", "field", "says"),
    [
        (DECODER, {"batching": {"policy": "Dynamic"}}, "spec.batching.policy", "write policy: Continuous"),
        (OTHER, {"batching": {"policy": "Continuous"}}, "spec.batching.policy", "export it with --task generate"),
        (DECODER, {"batching": {"shapeBuckets": {"batch": [1]}}}, "spec.batching.shapeBuckets", "remove it"),
        (DECODER, {"batching": {"dimensions": {"batch": "x.0"}}}, "spec.batching.dimensions", "remove it"),
        (DECODER, {"batching": {"padding": "Never"}}, "spec.batching.padding", "remove it"),
        (DECODER, {"batching": {"oversize": "RunUnpadded"}}, "spec.batching.oversize", "remove it"),
        (DECODER, {"batching": {"instances": 2}}, "spec.batching.instances", "remove it"),
        (OTHER, {"generation": {"maxLength": 64}}, "spec.generation.maxLength", "--task generate"),
        (OTHER, {"generation": {"cacheType": "BFloat16"}}, "spec.generation.cacheType", "--task generate"),
        (OTHER, {"generation": {"speculation": {"method": "PromptLookup"}}}, "spec.generation.speculation", "remove"),
    ],
)
def test_what_does_not_belong_to_the_artifact_is_refused_by_its_field_with_what_to_write(
    document: dict[str, Any], parts: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(FatalError) as raised:
        check_policy(config(**parts), document)
    error = raised.value
    assert (error.reason, error.condition, error.field) == ("PolicyMismatch", "Accepted", field)
    assert error.message.startswith(f"{field}: ")
    assert says in error.message


def test_a_draft_that_is_not_there_is_refused_by_its_field_with_what_to_do() -> None:
    drafted = config(generation={"speculation": {"method": "Draft"}})
    check_draft(drafted, ["model", "draft"])
    check_draft(config(), ["model"])
    with pytest.raises(FatalError) as raised:
        check_draft(drafted, ["model"])
    error = raised.value
    assert (error.reason, error.condition) == ("UnknownProgram", "ArtifactVerified")
    assert error.field == "spec.generation.speculation.method"
    assert error.message.startswith("spec.generation.speculation.method: Draft, and the artifact holds model, but no ")
    assert "export it with --draft" in error.message
    assert "method: PromptLookup" in error.message


def test_a_token_takes_keys_and_values_in_every_layer_and_in_the_draft() -> None:
    assert bytes_per_token(config().generation, DECODER) == 2 * 2 * 2 * 8 * 4
    halved = config(generation={"cacheType": "BFloat16"}).generation
    assert bytes_per_token(halved, DECODER, DECODER) == 2 * 2 * 2 * 2 * 8 * 2


@pytest.mark.parametrize(
    ("parts", "limit", "reason", "field"),
    [
        ({}, 4 << 30, "Prepared", None),
        ({"batching": {"policy": "Dynamic"}}, 4 << 30, "PolicyMismatch", "spec.batching.policy"),
        ({"generation": {"maxLength": 512}}, 600_000, "WillNotFit", "spec.generation.maxLength"),
        ({"precision": "Int8", "generation": {"maxLength": 512, "cacheType": "BFloat16"}}, 600_000, "Prepared", None),
        (
            {"generation": {"speculation": {"method": "Draft"}}},
            1 << 33,
            "UnknownProgram",
            "spec.generation.speculation.method",
        ),
    ],
)
def test_the_prepare_step_refuses_what_is_certain_before_torch_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], limit: int, reason: str, field: str | None
) -> None:
    monkeypatch.setattr(prepare_step, "host_room", lambda: Room(limit, "the container's memory limit"))
    cold = config(artifact={"uri": tiny(tmp_path).as_uri()}, **parts)
    (tmp_path / "config.json").write_text(cold.to_json())
    options = {
        "--config": tmp_path / "config.json",
        "--output": tmp_path / "model",
        "--termination-log": tmp_path / "termination-log",
    }
    code = prepare_step.main([str(part) for pair in options.items() for part in pair])
    said = json.loads((tmp_path / "termination-log").read_text())
    assert (code, said["reason"], said.get("field")) == (int(reason != "Prepared"), reason, field)
    if reason == "WillNotFit":
        assert "a sequence of 512 tokens needs 33 blocks of 8.0 KiB (512 bytes a token" in said["message"]
        assert "one step" not in said["message"], "which only the serving process has measured"
