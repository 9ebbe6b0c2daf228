"""docs/signing.md: its commands run in the order in which they stand there, and its statement is what is signed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.cli import app
from typer.testing import CliRunner

from tests.unit.signing_keys import said

PAGE = (Path(__file__).resolve().parents[2] / "docs/signing.md").read_text()
COMMANDS = re.findall(r"\bheadway ((?:keygen|sign|verify) [^`#\n]*[^`#\s])", PAGE)


def shape(value: Any) -> Any:
    """The names of fields and the types of values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)), "model.pt2")
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        result = CliRunner().invoke(app, shlex.split(command), env={"HEADWAY_PASSPHRASE": "open sesame"})
        assert result.exit_code == 0, f"headway {command}: {result.output}"
    example = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    statement = said((tmp_path / "model.pt2.sig").read_bytes())
    assert shape(example) == shape(statement)
    assert {key: example[key] for key in ("_type", "predicateType")} == {
        key: statement[key] for key in ("_type", "predicateType")
    }
