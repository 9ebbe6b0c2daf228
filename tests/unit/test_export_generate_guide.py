"""docs/generation.md, "Export a decoder", is true: its command and its program run, on folders of the names it has."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from headway_runtime.cli import app
from headway_runtime.prepare import inspection
from typer.testing import CliRunner

from tests.decoders import tiny_model, tiny_tokenizer

PAGE = (Path(__file__).resolve().parents[2] / "docs/generation.md").read_text()
SECTION = PAGE.split("## Export a decoder\n")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, flags=re.DOTALL | re.MULTILINE)


def test_the_command_and_the_program_of_the_page_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    for name in ("SmolLM2-135M-Instruct", "tiny-llama"):
        tiny_model("llama").save_pretrained(name)
        tiny_tokenizer().save_pretrained(name)
    (command,) = blocks("sh")
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    by_command = inspection.inspect("chat.pt2").document["generation"]
    Path("chat.pt2").unlink()
    (program,) = blocks("python")
    exec(program, {"__name__": "guide"})
    assert inspection.inspect("chat.pt2").document["generation"] == by_command


def test_the_links_of_the_section_lead_somewhere() -> None:
    root = Path(__file__).resolve().parents[2] / "docs"
    for target in re.findall(r"\]\(([^)#]+)\)", SECTION):
        assert (root / target).exists(), target
