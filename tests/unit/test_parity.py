"""Golden samples: what agrees and what does not, and what a pod does when its answers differ."""

import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.podconfig import ColdVerification
from headway_api.types import OnMismatch, Spec
from headway_runtime import local
from headway_runtime.agreement import Tolerance, compare
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.export import Size, export_model
from headway_runtime.parity import Golden, Sample, load_golden, verify
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.program import Program, load_program

from tests.unit.pod_process import pod
from tests.unit.small_models import prepare

NAN, INF = math.nan, math.inf


def f(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("answer", "golden", "tolerance", "agrees"),
    [
        (f(1.0), f(1.0005), Tolerance(), True),
        (f(1.0), f(1.002), Tolerance(), False),
        (f(1.0), f(1.002), Tolerance(rtol=0.01), True),
        (f(0.0), f(1e-6), Tolerance(), True),
        (f(0.0), f(1e-4), Tolerance(), False),
        (f(0.0), f(1e-4), Tolerance(atol=1e-3), True),
        (f(NAN, INF, -INF), f(NAN, INF, -INF), Tolerance(), True),
        (f(NAN), f(1.0), Tolerance(), False),
        (f(1.0), f(NAN), Tolerance(), False),
        (f(1.0), f(INF), Tolerance(), False),
        (f(INF), f(-INF), Tolerance(), False),
        (f(1e30), f(INF), Tolerance(rtol=1.0), False),
        (f(1.0, dtype=torch.bfloat16), f(1.0078125, dtype=torch.bfloat16), Tolerance(), True),
        (f(1.0, dtype=torch.bfloat16), f(1.0625, dtype=torch.bfloat16), Tolerance(), False),
        (f(1.0, dtype=torch.float16), f(1.001953125, dtype=torch.float16), Tolerance(), True),
        (f(2.0, dtype=torch.float64), f(2.0), Tolerance(), False),
        (f(1.0, 2.0), f(1.0), Tolerance(), False),
        (torch.tensor([2**62 + 1]), torch.tensor([2**62]), Tolerance(rtol=1.0), False),
        (torch.tensor([-(2**63)]), torch.tensor([2**63 - 1]), Tolerance(), False),
        (torch.tensor([3, 4]), torch.tensor([3, 4]), Tolerance(rtol=0.0, atol=0.0), True),
        (torch.tensor([True]), torch.tensor([False]), Tolerance(atol=10.0), False),
        (torch.tensor([5], dtype=torch.uint16), torch.tensor([6], dtype=torch.uint16), Tolerance(), False),
        (torch.empty(0, 3), torch.empty(0, 3), Tolerance(), True),
        (torch.tensor(1.0), torch.tensor(2.0), Tolerance(), False),
    ],
)
def test_values_agree_within_the_tolerance_of_their_type(
    answer: torch.Tensor, golden: torch.Tensor, tolerance: Tolerance, agrees: bool
) -> None:
    largest, text = compare(answer, golden, tolerance)
    assert (text == "") is agrees, text
    assert math.isfinite(largest)


def test_a_difference_is_told_with_its_place_and_both_values() -> None:
    largest, text = compare(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.5], [3.0, 7.0]]), Tolerance())
    assert largest == 3.0
    assert "2 of 4 values differ, the largest difference is 3 at [1, 1] (here 4, golden 7)" in text
    assert "1e-05 + 0.001 * |golden|" in text
    _, text = compare(torch.tensor([[1.0, NAN]]), torch.tensor([[5.0, 0.5]]), Tolerance())
    assert "without bound at [0, 1] (here nan, golden 0.5)" in text


class Scores(torch.nn.Module):
    """x [batch, width] -> score [batch, 2], low (the same in bfloat16) and best [batch], the larger one's number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        score = self.layer(torch.stack([x.sum(1), x.amax(1), x.amin(1), x.mean(1)], dim=1))
        return {"score": score, "low": score.to(torch.bfloat16), "best": score.argmax(1)}


SAMPLES = [{"x": torch.rand(rows, width)} for rows, width in ((1, 3), (4, 5), (9, 2), (2, 40))]


def write(path: Path, **facts: Any) -> Path:
    shapes = {"x": {0: Size("batch", 1, 16), 1: Size("width", 1, 64)}}
    example = {"x": torch.rand(3, 5)}
    export_model(Scores().eval(), example, path=path, dynamic_shapes=shapes, samples=SAMPLES, **facts)
    return path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("parity") / "scores.pt2")


@pytest.fixture(scope="module")
def prepared(artifact: Path) -> Path:
    return prepare(artifact, artifact.parent / "scores")


@pytest.fixture(scope="module")
def program(prepared: Path) -> Program:
    return load_program(prepared, dimension_names={})


def perturbed(source: Path, target: Path) -> Path:
    """The same archive with other weights, its checksums right: what only golden samples can find."""
    with zip_.open_archive(source) as archive:
        entry = archive.entries["data/weights/weight_0"]
    data = bytearray(source.read_bytes())
    weights = torch.frombuffer(data, dtype=torch.float32, count=entry.size // 4, offset=entry.offset)
    weights[0] += 0.5
    before, after = entry.crc, zlib.crc32(bytes(data[entry.offset : entry.offset + entry.size]))
    changed = bytes(data).replace(before.to_bytes(4, "little"), after.to_bytes(4, "little"))
    target.write_bytes(changed)
    with zipfile.ZipFile(target) as archive_:
        assert archive_.testzip() is None
    return target


def run(program: Program, golden: Golden, buckets: dict[str, list[int]] | None = None, **asked: Any) -> Any:
    resolved = resolve_buckets(program, buckets)
    return verify(program, Layout.of(program), resolved, golden, ColdVerification(**asked))


def test_honest_samples_agree_in_every_output_and_type(program: Program, prepared: Path) -> None:
    golden = load_golden(prepared, None)
    assert [[t.dtype for t in s.outputs] for s in golden.samples[:1]] == [[torch.float32, torch.bfloat16, torch.int64]]
    report = run(program, golden)
    assert (report.samples, report.agrees, report.message) == (4, True, "")
    assert report.largest_difference < 1e-5


def test_samples_that_the_largest_bucket_does_not_admit_are_left_out_and_said(program: Program, prepared: Path) -> None:
    report = run(program, load_golden(prepared, None), {"batch": [1, 8], "width": [8]})
    assert (report.samples, report.agrees) == (2, True)
    assert "golden sample 2 is not run: its batch is 9, and the largest bucket is 8" in report.message
    assert "golden sample 3 is not run: its width is 40, and the largest bucket is 8" in report.message


def test_a_sample_outside_of_the_programs_range_is_left_out(program: Program) -> None:
    outputs = tuple(program.run([torch.rand(2, 3)]))
    report = run(
        program, Golden((Sample((torch.rand(17, 3),), outputs), Sample((torch.rand(2, 3).double(),), outputs)))
    )
    assert (report.samples, report.agrees) == (0, True)
    assert "axis 0 (batch) is 17; allowed is 1 to 16" in report.message
    assert "its input x is torch.float64, and the program takes FP32" in report.message


def test_no_samples_no_report(program: Program) -> None:
    assert run(program, Golden()) is None


def test_the_users_tolerance_wins_over_the_records_and_that_over_the_default(program: Program) -> None:
    inputs = torch.rand(2, 3)
    score, low, best = program.run([inputs])
    off = Golden((Sample((inputs,), (score * 1.01, low, best)),), Tolerance(rtol=0.05))
    assert run(program, off).agrees
    with pytest.raises(FatalError, match="output score"):
        run(program, off, rtol=1e-4)
    with pytest.raises(FatalError, match="output score"):
        run(program, Golden(off.samples))
    assert run(program, Golden(off.samples), rtol=0.05).agrees


def test_a_difference_blocks_and_names_sample_output_and_what_to_do(program: Program) -> None:
    inputs = torch.rand(2, 3)
    score, low, best = program.run([inputs])
    wrong = Golden((Sample((inputs,), (score, low, best + 1)),))
    with pytest.raises(FatalError) as failed:
        run(program, wrong)
    assert (failed.value.reason, failed.value.condition) == ("ParityFailed", "Ready")
    assert "golden sample 0, output best: 2 of 2 values differ" in failed.value.message
    assert "spec.verification.onMismatch: Warn" in failed.value.message
    report = run(program, wrong, on_mismatch=OnMismatch.WARN)
    assert (report.agrees, report.largest_difference) == (False, 1.0)


def test_a_program_that_raises_on_a_sample_disagrees(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no such kernel")

    golden = Golden((Sample((torch.rand(2, 3),), tuple(program.run([torch.rand(2, 3)]))),))
    monkeypatch.setattr(program, "run", broken)
    report = run(program, golden, on_mismatch=OnMismatch.WARN)
    assert "golden sample 0: the program failed: RuntimeError: no such kernel" in report.message


def test_a_pod_with_other_weights_than_its_author_had_never_becomes_ready(artifact: Path, tmp_path: Path) -> None:
    model = prepare(perturbed(artifact, tmp_path / "other.pt2"), tmp_path / "model")
    with pod(tmp_path, model) as serving:
        assert serving.process.wait(60) == 1
    said = json.loads((tmp_path / "termination-log").read_text())
    assert (said["condition"], said["reason"], said["field"]) == ("Ready", "ParityFailed", "spec.verification")
    assert "golden sample 0, output score" in said["message"]


def test_with_warn_it_serves_and_says_so(artifact: Path, tmp_path: Path) -> None:
    model = prepare(perturbed(artifact, tmp_path / "other.pt2"), tmp_path / "model")
    with pod(tmp_path, model, verification={"onMismatch": "Warn"}) as serving:
        serving.wait_for_phase()
        parity = serving.report()["parity"]
        assert (parity["samples"], parity["agrees"]) == (4, False)
        assert 0.01 < parity["largestDifference"] < 100
        assert "output score" in parity["message"]
        assert "headway_parity_agrees 0.0" in serving.admin("/metrics").text
    assert "golden_sample_differs" in (tmp_path / "log").read_text()


def test_an_honest_pod_reports_how_close_it_came(prepared: Path, tmp_path: Path) -> None:
    with pod(tmp_path, prepared, batching={"shapeBuckets": {"batch": [1, 4], "width": [8]}}) as serving:
        serving.wait_for_phase()
        parity = serving.report()["parity"]
        assert (parity["samples"], parity["agrees"]) == (2, True)
        assert "headway_parity_agrees 1.0" in serving.admin("/metrics").text


def test_a_manifest_on_a_laptop_rules_as_in_the_cluster(artifact: Path, tmp_path: Path) -> None:
    spec: dict[str, Any] = {"artifact": {"uri": "s3://m/a.pt2", "program": "model"}, "device": {"kind": "cpu"}}
    spec["verification"] = {"onMismatch": "Warn", "atol": 0.5}
    config = local.write_files(tmp_path, artifact, ("scores", Spec.model_validate(spec)))
    assert config.verification == ColdVerification(on_mismatch=OnMismatch.WARN, atol=0.5)
    assert config.artifact.program == "model"
    assert local.write_files(tmp_path, artifact, None).verification == ColdVerification()
