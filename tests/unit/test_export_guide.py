"""docs/export.md is true: its programs run, and the files they write are what the page says, and are served."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from headway_api.types import Batching, Spec
from headway_runtime.buckets import resolve_buckets
from headway_runtime.cli import app
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
    """Where the page's two programs have run, one after the other, as a reader would."""
    where = tmp_path_factory.mktemp("guide")
    names: dict[str, Any] = {"__name__": "guide"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        for block in blocks("python"):
            exec(block, names)
    return where


def inspected(file: Path) -> str:
    result = CliRunner().invoke(app, ["inspect", str(file)])
    assert result.exit_code == 0, result.output
    return re.sub(r"torch [0-9.]+", "torch VERSION", result.output.replace(f"{file.parent}/", ""))


def loaded(file: Path, batching: Batching) -> Program:
    """The program as a pod has it, its buckets accepted."""
    target = file.with_suffix("")
    run.prepare(file.as_uri(), target, pinned=None, credentials=Path("/nonexistent"))
    program = load_program(target, dimension_names=batching.dimensions or {})
    resolve_buckets(program, batching.shape_buckets)
    return program


def test_inspect_says_what_the_page_shows(folder: Path) -> None:
    (shown,) = blocks("text")
    assert inspected(folder / "sentiment.pt2").strip() == re.sub(r"torch [0-9.]+", "torch VERSION", shown).strip()


def test_the_manifest_fits_the_program(folder: Path) -> None:
    batching = Spec.model_validate(yaml.safe_load(blocks("yaml")[0])["spec"]).batching
    assert batching is not None
    program = loaded(folder / "sentiment.pt2", batching)
    assert (program.batch, list(program.dimensions)) == ("batch", ["batch", "sequence"])


def test_a_plain_export_is_named_by_place_and_by_the_manifest(folder: Path) -> None:
    text = inspected(folder / "plain.pt2")
    assert "ids: int64 [ids.0, ids.1]" in text
    assert "output_0: float32 [ids.0, 2]" in text
    unnamed = loaded(folder / "plain.pt2", Batching())
    assert (unnamed.batch, list(unnamed.dimensions)) == ("batch", ["batch", "ids.1"])
    named = loaded(folder / "plain.pt2", Batching.model_validate(yaml.safe_load(blocks("yaml")[1])["batching"]))
    assert list(named.dimensions) == ["batch", "sequence"]


def test_the_request_is_answered(folder: Path, tmp_path: Path) -> None:
    loaded(folder / "sentiment.pt2", Batching())
    ((name, body),) = re.findall(r"curl \S+ http://localhost:8080/v2/models/(\S+)/infer .*?-d '(.*?)'", PAGE, re.DOTALL)
    with pod(tmp_path, folder / "sentiment", model=name) as serving:
        serving.wait_for_phase()
        answer = httpx.post(f"{serving.url}/v2/models/{name}/infer", json=json.loads(body))
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("score", "FP32", [1, 2])
