"""The README is true: the parts that need no cluster. `tests/e2e/test_story.py` runs the rest."""

import json
import re
from pathlib import Path

import pytest
import yaml
from headway_api.names import API_VERSION, KIND
from headway_api.types import Spec
from headway_runtime.cli import app
from typer.testing import CliRunner

from tests.readme import README, ROOT, blocks, commands, inference_body

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("charts/*/*.md")]
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_heading_leads_to_one(document: Path) -> None:
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text()):
        text = ((document.parent / target) if target else document).read_text()
        headings = [
            re.sub(r"[^\w -]", "", line).strip().lower() for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        ]
        assert heading in [found.replace(" ", "-") for found in headings], (target, heading)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_is_a_target(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = re.findall(r"(?:^|`| )make ([a-z-]+)(?:`|$| {2})", document.read_text(), flags=re.MULTILINE)
    assert set(named) <= targets


def test_the_manifest_is_one() -> None:
    (manifest,) = (yaml.safe_load(block) for block in blocks("yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == (API_VERSION, KIND)
    Spec.model_validate(manifest["spec"])


@pytest.mark.parametrize("command", commands("headway"))
def test_the_command_line_has_the_command(command: str) -> None:
    name = command.split()[1]
    assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_the_request_is_a_request_for_the_models_inputs() -> None:
    assert [tensor["name"] for tensor in json.loads(inference_body())["inputs"]] == ["ids", "mask"]
    assert "x-headway-revision" in README
