"""docs/export.md is true: its programs run, and the files they write are what the page says, and are served."""

import json
import re
import shlex
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from headway_api.types import Batching, Spec
from headway_runtime.buckets import resolve_buckets
from headway_runtime.cli import app
from headway_runtime.parity import load_golden
from headway_runtime.prepare import run
from headway_runtime.program import Program, load_program
from typer.testing import CliRunner

from tests.unit.pod_process import pod

PAGE = (Path(__file__).resolve().parents[2] / "docs/export.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's commands and programs have run, one after the other, as a reader would."""
    where = tmp_path_factory.mktemp("guide")
    code, function, plain = blocks("python")
    (where / "model.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        patch.setattr("sys.path", [str(where), *sys.path])
        exporting, naming = commands("export")
        (where / "exported.txt").write_text(headway(exporting))
        (where / "sentiment.pt2").rename(where / "by-command.pt2")
        exec(code + function + plain, {"__name__": "guide"})
        headway(naming)
    return where


def commands(name: str) -> list[str]:
    """The one-line commands `headway NAME …` of the shell blocks."""
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith(f"headway {name} ")]


def headway(command: str) -> str:
    """What a command prints on standard output."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


def steady(text: str) -> str:
    """Without what differs from one torch, or one run, to the next."""
    text = re.sub(r"torch [0-9.]+", "torch VERSION", text)
    text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:DIGEST", text)
    text = re.sub(r"difference [0-9.e-]+", "difference D", text)
    return re.sub(r"[0-9][0-9,]* bytes(?! of)", "N bytes", text).strip()


def inspected(file: Path) -> str:
    return headway(f"headway inspect {file}").replace(f"{file.parent}/", "")


def loaded(file: Path, batching: Batching) -> Program:
    """The program as a pod has it, its buckets accepted."""
    target = file.with_suffix("")
    run.prepare(file.as_uri(), target, pinned=None, credentials=Path("/nonexistent"))
    program = load_program(target, dimension_names=batching.dimensions or {})
    resolve_buckets(program, batching.shape_buckets)
    return program


def test_inspect_says_what_the_page_shows(folder: Path) -> None:
    _, shown = blocks("text")
    found = inspected(folder / "by-command.pt2").replace("by-command", "sentiment")
    assert steady(found) == steady(shown)


def test_export_says_what_the_page_shows(folder: Path) -> None:
    shown, _ = blocks("text")
    assert steady((folder / "exported.txt").read_text()) == steady(shown)


def test_the_manifest_fits_the_program(folder: Path) -> None:
    batching = Spec.model_validate(yaml.safe_load(blocks("yaml")[0])["spec"]).batching
    assert batching is not None
    program = loaded(folder / "sentiment.pt2", batching)
    assert (program.batch, list(program.dimensions)) == ("batch", ["batch", "sequence"])


def test_a_plain_export_is_named_by_place_and_by_the_manifest(folder: Path) -> None:
    text = inspected(folder / "plain.pt2")
    assert "ids: int64 [batch, ids.1]" in text
    assert "output_0: float32 [batch, 2]" in text
    unnamed = loaded(folder / "plain.pt2", Batching())
    assert (unnamed.batch, list(unnamed.dimensions)) == ("batch", ["batch", "ids.1"])
    named = loaded(folder / "plain.pt2", Batching.model_validate(yaml.safe_load(blocks("yaml")[1])["batching"]))
    assert list(named.dimensions) == ["batch", "sequence"]


def test_a_plain_export_is_named_and_made_golden_by_the_command(folder: Path) -> None:
    program = loaded(folder / "named.pt2", Batching())
    assert (list(program.dimensions), [o.name for o in program.outputs]) == (["batch", "sequence"], ["score"])
    assert len(load_golden(folder / "named", None).samples) == 1


def test_the_request_is_answered(folder: Path, tmp_path: Path) -> None:
    loaded(folder / "sentiment.pt2", Batching())
    ((name, body),) = re.findall(r"curl \S+ http://localhost:8080/v2/models/(\S+)/infer .*?-d '(.*?)'", PAGE, re.DOTALL)
    with pod(tmp_path, folder / "sentiment", model=name) as serving:
        serving.wait_for_phase()
        answer = httpx.post(f"{serving.url}/v2/models/{name}/infer", json=json.loads(body), timeout=60)
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("score", "FP32", [1, 2])
