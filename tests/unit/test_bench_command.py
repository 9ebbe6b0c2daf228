"""`headway bench` on real pods: a file that it serves itself, and a URL; and what it says when it cannot."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from headway_api.types import Batching
from headway_runtime.bench import plot as plotting
from headway_runtime.bench import target
from headway_runtime.cli import app
from typer.testing import CliRunner

from tests.ports import free_port
from tests.unit.pod_process import PodProcess, pod
from tests.unit.small_models import Encoder, export, prepare

QUICK = ["--seconds", "0.4", "--connections", "1", "--connections", "4"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Encoder, tmp_path_factory.mktemp("bench") / "encoder.pt2")


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[PodProcess]:
    buckets = {"shapeBuckets": {"batch": [1, 4, 8], "ids.1": [4, 32]}}
    with pod(artifact.parent, prepare(artifact, artifact.parent / "model"), batching=buckets) as started:
        started.wait_for_phase()
        yield started


@pytest.fixture(autouse=True)
def usual_admin_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody serves there, whoever else uses this machine."""
    monkeypatch.setattr(target, "ADMIN_PORT", free_port())


def bench(*arguments: str) -> str:
    """What the command prints; progress goes elsewhere."""
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_file_is_served_measured_and_advised_and_nothing_is_left(artifact: Path, tmp_path: Path) -> None:
    arguments = ["bench", str(artifact), *QUICK, "--sizes", "ids.1=3..20~8", "--plot", str(tmp_path / "bench.svg")]
    program = "import sys, headway_runtime.cli as c; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive"},
    )
    assert done.returncode == 0, done.stderr
    for wanted in ("closed, 4", "open, 80% of most", "cost of a run", "maxBatch", "CPU µs/req"):
        assert wanted in done.stdout
    snippet = yaml.safe_load(done.stdout.partition("spec:")[2].partition("\n\n")[0].join(["spec:", ""]))
    advised = Batching.model_validate(snippet["spec"]["batching"])
    assert advised.max_batch
    assert advised.shape_buckets
    assert "<svg" in (tmp_path / "bench.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["bench.svg"]


def test_what_is_advised_is_set_without_a_restart_and_measured(artifact: Path, tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "serving.headway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "mine"},
        "spec": {
            "artifact": {"uri": "s3://elsewhere/model.pt2"},
            "device": {"kind": "cpu"},
            "batching": {"maxBatch": 3, "maxWait": "25ms", "shapeBuckets": {"batch": [1, 16], "ids.1": [8]}},
        },
    }
    (tmp_path / "md.yaml").write_text(yaml.safe_dump(manifest))
    found = json.loads(bench(str(artifact), *QUICK, "--manifest", str(tmp_path / "md.yaml"), "--json"))
    assert found["model"] == "mine"
    assert found["advice"]["now"] == {"maxBatch": 3, "maxWait": "25ms"}
    assert found["advice"]["advised"]["maxWait"] == "0s"
    before, after = found["measurements"][0], found["advice"]["verified"][0]
    assert (before["label"], after["label"]) == ("closed, 1", "closed, 1, as advised")
    assert before["latency"]["p50"] > 0.025 > after["latency"]["p50"]  # the wait, and no wait
    assert before["cpuPerRequest"] > 0


def test_a_url_is_measured_in_json_for_programs(server: PodProcess) -> None:
    admin = f"http://127.0.0.1:{server.admin_port}"
    options = ["--url", server.url, "--admin-url", admin, *QUICK, "--rate", "40", "--sizes", "ids.1=5"]
    found = json.loads(bench(*options, "--json", "--latency-target", "500ms"))
    assert [each["label"].split(",")[0] for each in found["measurements"]] == ["closed", "closed", "open"]
    for each in found["measurements"]:
        assert each["errors"] == {}
        assert each["answered"] > 5
        assert 0 < each["latency"]["p50"] <= each["latency"]["p99"] <= each["latency"]["max"]
        assert each["meanBatch"] >= 1
        assert each["cpuPerRequest"] is None  # it may run anywhere
    assert found["latencyTarget"]["rate"] > 0
    assert [len(curve["points"]) for curve in found["costs"]] == [3, 3]
    assert found["advice"]["verified"] == []  # a pod elsewhere keeps its knobs
    assert found["requests"]["ranges"] == {"ids": [0, 9]}  # it knows 50 words
    assert found["precision"] == "Exported"


def test_a_pod_without_its_admin_port_is_measured_without_advice(server: PodProcess) -> None:
    admin = free_port()
    refused = CliRunner().invoke(app, ["bench", "--url", server.url, "--admin-url", f"http://127.0.0.1:{admin}"])
    assert refused.exit_code == 1
    assert f"127.0.0.1:{admin}" in refused.output
    options = ["--url", server.url, "--model", "encoder", *QUICK, "--sizes", "ids.1=5"]
    unequal = CliRunner().invoke(app, ["bench", *options, "--sizes", "mask.1=6"])
    assert unequal.exit_code == 1
    assert "--sizes" in unequal.output  # nobody has said that the two are one dimension
    found = json.loads(bench(*options, "--sizes", "mask.1=5", "--json"))
    assert "advice" not in found
    assert "--admin-url" in found["warnings"][0]


def test_overload_is_counted_and_not_hidden(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "0ms", "queue": {"capacity": 1}})
    admin = f"http://127.0.0.1:{server.admin_port}"
    sizes = ["--sizes", "ids.1=5"]
    try:
        options = ["--url", server.url, "--admin-url", admin, "--seconds", "1", *sizes, "--rate", "100000", "--json"]
        found = json.loads(bench(*options))
    finally:
        server.apply_knobs({"maxWait": "0ms"})
    opened = found["measurements"][-1]
    assert opened["errors"].get("429", 0) > 0
    assert opened["answered"] + sum(opened["errors"].values()) == opened["offered"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "http://127.0.0.1:1"], "headway: http://127.0.0.1:1 does not answer"),
        (["--url", "https://127.0.0.1:1"], "only http://"),
        (["--url", "http://127.0.0.1:1", "--model", "m"], "127.0.0.1:1"),
        ([], "headway bench FILE|URL"),
        (["127.0.0.1:8080"], "for a served model write http://127.0.0.1:8080"),
        (["localhost:8080/v1"], "write http://localhost:8080/v1"),
        (["http://127.0.0.1:1/v1"], "leave out /v1, which is OpenAI's part of it: http://127.0.0.1:1"),
        (["--url", "http://127.0.0.1:1", "--sizes", "x"], "--sizes 'x'"),
        (["--url", "http://127.0.0.1:1", "--range", "ids"], "--range ids"),
        (["--url", "http://127.0.0.1:1", "--latency-target", "soon"], "--latency-target"),
        (["--url", "http://127.0.0.1:1", "--plot", "x.doc"], "must end with .svg"),
        (["--url", "http://127.0.0.1:1", "--plot", "/nowhere/x.svg"], "no such folder"),
    ],
)
def test_what_cannot_be_measured_is_said(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code in (1, 2)
    assert says in " ".join(result.output.replace("│", " ").split())


def test_the_url_of_an_admin_port_is_known_for_what_it_is(server: PodProcess) -> None:
    url = f"http://127.0.0.1:{server.admin_port}"
    result = CliRunner().invoke(app, ["bench", url])
    assert result.exit_code == 1
    assert f"{url} is a pod's admin port: give the URL of inference" in result.output
    assert f"--admin-url {url}" in result.output


def test_sizes_of_no_dimension_are_refused(server: PodProcess) -> None:
    admin = f"http://127.0.0.1:{server.admin_port}"
    result = CliRunner().invoke(app, ["bench", "--url", server.url, "--admin-url", admin, "--sizes", "width=3"])
    assert result.exit_code == 1
    assert "the model's dimensions are batch, ids.1" in result.output


def test_a_url_that_answers_without_an_admin_port_needs_the_models_name(server: PodProcess) -> None:
    result = CliRunner().invoke(app, ["bench", "--url", server.url])
    assert result.exit_code == 1
    assert "which model?" in result.output


def test_another_pod_at_the_usual_admin_port_is_not_taken_for_the_models(
    server: PodProcess, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pod(tmp_path, prepare(artifact, tmp_path / "model"), model="other") as other:
        other.wait_for_phase()
        monkeypatch.setattr(target, "ADMIN_PORT", other.admin_port)
        result = CliRunner().invoke(app, ["bench", "--url", server.url])
    assert result.exit_code == 1
    assert "is the admin port of model 'other'" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ("width=3", "the model's dimensions are batch, ids.1"),
        ("ids.1=8..200", "--sizes ids.1=8..200: the model takes 1 to 128"),
        ("ids.1=8..20", "--sizes ids.1=8..20: spec.batching.shapeBuckets.ids.1 admits 16"),
    ],
)
def test_sizes_that_a_file_does_not_take_are_said_before_it_is_served(
    artifact: Path, tmp_path: Path, sizes: str, says: str
) -> None:
    spec = {"artifact": {"uri": "s3://m.pt2"}, "device": {"kind": "cpu"}, "batching": {"shapeBuckets": {"ids.1": [16]}}}
    document = {"kind": "ModelDeployment", "metadata": {"name": "mine"}, "spec": spec}
    (tmp_path / "md.yaml").write_text(yaml.safe_dump(document))
    options = ["bench", str(artifact), "--manifest", str(tmp_path / "md.yaml"), "--sizes", sizes]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert says in result.output
    assert "preparing" not in result.output


def test_a_missing_matplotlib_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    importlib.reload(plotting)
    result = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:1", "--plot", "x.svg"])
    assert result.exit_code == 1
    assert "pip install '.[bench]'" in result.output


PAGE = (Path(__file__).resolve().parents[2] / "docs/bench.md").read_text()


def test_the_page_names_every_key_and_only_options_that_there_are(server: PodProcess) -> None:
    admin = f"http://127.0.0.1:{server.admin_port}"
    found = json.loads(bench("--url", server.url, "--admin-url", admin, *QUICK, "--latency-target", "1s", "--json"))
    keys = {key for key in found if f"`{key}`" in PAGE}
    assert keys == set(found)
    for part in (found["measurements"][0], found["advice"], found["costs"][0], found["latencyTarget"]):
        assert {key for key in part if f"`{key}`" in PAGE} == set(part)
    help_ = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).output
    for option in set(re.findall(r"`(?:headway bench [^`]*)?(--[a-z-]+)", PAGE)) - {"--seconds 3600"}:
        assert option in help_, option
