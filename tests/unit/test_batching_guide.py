"""docs/batching.md: its manifest is valid, and its figures are the code's."""

import re
from pathlib import Path

import yaml
from headway_api.names import PRIORITY_HEADER, TIMEOUT_HEADER
from headway_api.podconfig import Advice
from headway_api.types import Batching
from headway_runtime.batching.grouping import NOTICEABLE
from headway_runtime.batching.policy import LEVEL_SECONDS, Priority
from headway_runtime.serving.cache import SLACK

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/batching.md").read_text()
FLAT = " ".join(PAGE.split())


def test_the_manifest_is_valid() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    batching = Batching.model_validate(yaml.safe_load(block)["batching"])
    assert batching.max_batch == 16
    assert batching.cache is not None


def test_the_headers_and_levels_are_the_pods() -> None:
    for header in (TIMEOUT_HEADER, PRIORITY_HEADER):
        assert f"`{header}: " in PAGE
    assert all(f"`{level.name.lower()}`" in PAGE for level in Priority)


def test_the_figures_are_those_of_the_code() -> None:
    assert f"{NOTICEABLE:.0%}".replace("%", " %") in FLAT
    assert f"{LEVEL_SECONDS * 1e3:.0f} ms earlier" in FLAT
    assert (Priority.HIGH - Priority.LOW) * LEVEL_SECONDS == 0.5
    assert SLACK == 0.1


def test_every_advice_is_explained() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert all(any(f"`{advice.value}`" in row for row in rows) for advice in Advice)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
