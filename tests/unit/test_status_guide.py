"""docs/status.md explains every reason that a condition can have, and none that does not exist."""

import re
from pathlib import Path

import pytest
from headway_api.conditions import ConditionType, Reason
from headway_runtime.prepare.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/status.md").read_text()
WRITTEN = re.compile(
    r"""
    (?: (?:Fatal|Fetch|Program|Prepare)Error \( | refusal \( error, | reason= )
    \s* (?: "(?:Accepted|ArtifactVerified)", )?  # a ProgramError names its condition first
    \s* "([A-Z]\w+)"
    """,
    flags=re.VERBOSE,
)


def of_pods() -> set[str]:
    """The reasons that the code of the pods gives, read from its source: it writes them as they are."""
    sources = [path.read_text() for path in (ROOT / "runtime/headway_runtime").rglob("*.py")]
    return {reason for text in sources for reason in WRITTEN.findall(text)} | {rule.reason for rule in RULES.values()}


def explained() -> set[str]:
    """Every reason in the first or third column of a table."""
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("|")]
    return {word for row in rows for cell in (row[1], row[3]) for word in re.findall(r"`([A-Z][A-Za-z]+)`", cell)}


def test_the_source_of_the_pods_is_read() -> None:
    assert of_pods() >= {"InvalidURI", "UnknownDimension", "LoadFailed", "EngineFailed", "NotAnArchive", "OutOfMemory"}


@pytest.mark.parametrize("reason", sorted({*map(str, Reason), *of_pods()}))
def test_every_reason_is_explained(reason: str) -> None:
    assert reason in explained()


def test_what_is_explained_exists() -> None:
    assert explained() <= {*map(str, Reason), *of_pods(), *map(str, ConditionType)}
