"""docs/generation.md, from "Serve it" on, says what the code does: its manifest, its thresholds, its arithmetic."""

import re
from pathlib import Path

import yaml
from headway_api.podconfig import ColdGeneration, Knobs
from headway_api.types import CacheType, Precision, Spec
from headway_runtime.generation import gate, sizing
from headway_runtime.generation_knobs import DEFAULT_SEQUENCES, Bounds, resolve
from headway_runtime.local_rules import broken_rule
from headway_runtime.precision import LEAST_EQUAL
from headway_runtime.prepare import budget
from headway_runtime.prepare.decoder import BLOCK_TOKENS

PAGE = (Path(__file__).resolve().parents[2] / "docs/generation.md").read_text()
SMOLLM2 = sizing.uniform(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49_152)
LENGTHS = {"8,192": 8192, "256": 256}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_manifest_is_one_and_breaks_no_rule() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", section("Serve it"), flags=re.DOTALL)
    spec = Spec.model_validate(yaml.safe_load(block)["spec"])
    assert broken_rule(spec) is None
    cold = ColdGeneration.model_validate(spec.generation.model_dump(exclude_none=True) if spec.generation else {})
    assert (cold.max_length, cold.cache_type, spec.precision) == (4096, CacheType.BFLOAT16, Precision.INT8)
    assert resolve(Knobs.of(spec), Bounds(1000, 1000)).clamped == ()


def test_the_thresholds_of_the_golden_gate_are_those_of_the_code() -> None:
    text = section("Serve it")
    assert "less than a thousandth of a logit" in text
    assert gate.TIE == 0.001
    assert f"{LEAST_EQUAL[Precision.BFLOAT16]:.0%}".replace("%", " %") + " are the likeliest" in text
    assert f"| `Int8` | {LEAST_EQUAL[Precision.INT8]:.0%}".replace("%", " %") in text
    assert f"{('one', 'two', 'three')[gate.ALONE - 1]} of them alone" in text


def test_the_shares_of_the_memory_are_those_of_the_code() -> None:
    text = section("Memory and maxLength")
    assert f"{budget.MARGIN:.0%}, at least {budget.LEAST_MARGIN >> 20} MiB".replace("%", " %") in text
    assert f"a quarter of its free memory, at most {budget.MOST_UNASKED >> 30} GiB" in text
    assert budget.SHARE_OF_FREE == 0.25
    assert f"blocks of {BLOCK_TOKENS} tokens" in text


def test_the_arithmetic_of_a_token_is_right() -> None:
    text = section("Memory and maxLength")
    per_token = SMOLLM2.bytes_per_token(4)
    assert f" = {per_token:,} bytes a token, so 1 GiB holds {(1 << 30) // per_token:,} tokens" in text
    blocks = (1 << 30) // (BLOCK_TOKENS * per_token) - 1
    few, many = (sizing.sequences_in(blocks, length) for length in LENGTHS.values())
    assert f"{('one', 'two', 'three')[few - 1]}\nsequences of 8,192, or {many} of 256" in text


def test_the_knobs_have_the_defaults_that_the_page_says() -> None:
    text = section("Knobs")
    assert f"without it {DEFAULT_SEQUENCES}" in text
    clamped = resolve(Knobs(max_wait="20ms", latency_target="1s", cache_bytes="1Mi"), Bounds(1000, 1000)).clamped
    assert [clamp.field for clamp in clamped] == [
        "spec.batching.maxWait",
        "spec.batching.latencyTarget",
        "spec.batching.cache.bytes",
    ]
    assert "`batching.maxWait`, `latencyTarget`, `cache` | | not used" in text
