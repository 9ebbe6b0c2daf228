"""`spec.precision` of a program that answers at once: what is packed, what is refused, how answers are judged."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from headway_api.podconfig import ColdConfig, Verdict
from headway_api.types import Padding, Precision, Spec
from headway_runtime import closeness, memory, opened
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.parity import Sample
from headway_runtime.precision import LEAST_EQUAL, MOST_ERROR
from headway_runtime.prepare.room import Room
from headway_runtime.program import Program, ProgramError, load_program, quicker
from headway_runtime.program.load import read_document
from headway_runtime.program.shape_gate import ShapeGate
from headway_runtime.proof.padding import prove_padding
from headway_runtime.proof.trial import Request

from tests.unit import proof_models
from tests.unit.precision_models import INF, LOWER, NAN, WIDE, Broken, Nothing, Small, Words, golden, loaded, plain
from tests.unit.small_models import prepare


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden(tmp_path_factory.mktemp("classifier"))


@pytest.mark.parametrize(("precision", "share"), [(Precision.BFLOAT16, 0.5), (Precision.INT8, 0.25)])
def test_large_weights_take_less_and_answers_stay_close(classifier: Path, precision: Precision, share: float) -> None:
    lower, exact = loaded(classifier, precision=precision), loaded(classifier, pack=False)
    floats = 2 * WIDE * WIDE * 4
    assert share * floats <= lower.packed <= 1.1 * share * floats
    assert exact.weights_bytes >= floats
    assert lower.weights_bytes == exact.weights_bytes - floats + lower.packed, "what is packed is counted once"
    x = torch.randn(40, WIDE)
    one, other = lower.run([x])[0], exact.run([x])[0]
    error = float((one - other).norm() / other.norm())
    assert 1e-4 < error < MOST_ERROR[precision], "not the same numbers, and near them"


def test_what_is_seen_inside_is_what_the_answers_are_made_of(classifier: Path) -> None:
    lower, exact = loaded(classifier, precision=Precision.INT8), loaded(classifier, pack=False)
    _, document = read_document(classifier)
    behind = next(node["args"][0]["v"] for node in document["nodes"] if node["op"] == "aten.argmax.default")
    x = torch.randn(4000, WIDE)
    with torch.inference_mode():
        best = lower.run([x])[1]
        assert torch.equal(lower.inside([behind])([x], None)[0].argmax(1), best)
        other = exact.inside([behind])([x], None)[0].argmax(1)
        assert not torch.equal(other, best), "another precision decides otherwise"


@pytest.mark.parametrize("precision", LOWER)
def test_a_program_without_large_weights_is_refused(tmp_path: Path, precision: Precision) -> None:
    folder = prepare(plain(Small(), torch.randn(2, 3), tmp_path / "m.pt2"), tmp_path / "prepared")
    with pytest.raises(ProgramError, match="no weight that is kept so") as raised:
        loaded(folder, precision=precision)
    error = raised.value
    assert (error.reason, error.condition, error.field) == ("PrecisionRefused", "Accepted", "spec.precision")
    assert error.message.startswith(f"spec.precision: {precision.value}, and ")
    assert error.message.endswith("write precision: Exported")


def test_a_weight_that_8_bits_cannot_keep_is_named(tmp_path: Path) -> None:
    folder = prepare(plain(Broken(), torch.randn(2, WIDE), tmp_path / "m.pt2"), tmp_path / "prepared")
    with pytest.raises(ProgramError, match=r"weight layer\.weight holds numbers that are not finite") as raised:
        loaded(folder, precision=Precision.INT8)
    assert raised.value.reason == "PrecisionRefused"
    assert loaded(folder, precision=Precision.BFLOAT16).packed


def test_a_gpu_is_refused_before_anything_is_packed_for_it(classifier: Path) -> None:
    with pytest.raises(FatalError, match="on a GPU only a decoder's weights are kept so") as raised:
        opened.open_program(config(precision="Int8", device={"kind": "gpu"}), classifier, None)
    assert (raised.value.reason, raised.value.field) == ("PrecisionRefused", "spec.precision")


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ([([3.0, 4.0], [3.0, 4.0])], 0.0),
        ([([3.0, 4.5], [3.0, 4.0])], 0.1),
        ([([0.1], [0.0]), ([1.0], [1.0]), ([1.0], [1.0])], 0.1),  # a logit near zero, by the size of the others
        ([([0.1], [0.0])], INF),
        ([([2.0], [1.0]), ([900.0], [900.0]), ([1.0], [1.0])], 1.0),  # one large answer hides nothing
        ([([110.0], [100.0]), ([1.0], [1.0]), ([1.0], [1.0])], 0.1),
        ([([3.0, 4.5, -1e30], [3.0, 4.0, -1e30])], 0.1 * math.sqrt(2 / 3)),  # "never" is no size
        ([([3.0, 4.5, INF, NAN], [3.0, 4.0, INF, NAN])], 0.1 * math.sqrt(1 / 2)),
        ([([NAN, 1.0], [1.0, 1.0])], INF),
        ([([1.0, 1.0], [INF, 1.0])], INF),
        ([([-INF], [INF])], INF),
        ([([], [])], 0.0),
        ([([1.0], [1.0]), ([1.5e200], [1e200])], INF),  # in float64: its square is none
        ([([1.0, 2.0], [1.0])], INF),
    ],
)
def test_an_answer_is_judged_by_its_error_and_its_size(
    pairs: list[tuple[list[float], list[float]]], error: float
) -> None:
    judged = closeness.Judged("y")
    for here, there in pairs:
        judged.hear(torch.tensor(here, dtype=torch.float64), torch.tensor(there, dtype=torch.float64))
    assert judged.error == pytest.approx(error)
    assert judged.share == 1.0


def test_whole_numbers_are_judged_by_the_share_that_is_equal() -> None:
    judged = closeness.Judged("label")
    judged.hear(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5]))
    judged.hear(torch.tensor(16 * [True]), torch.tensor(16 * [True]))
    assert judged.share == 0.95
    assert judged.is_close(Precision.BFLOAT16)
    judged.hear(torch.tensor([0]), torch.tensor([1]))
    assert not judged.is_close(Precision.BFLOAT16)
    assert judged.is_close(Precision.INT8)
    assert "equal in 19 of 21 places (90.5%; at least 90% are asked for)" in judged.words(Precision.INT8)
    assert LEAST_EQUAL[Precision.BFLOAT16] == 0.95


def judged(folder: Path, samples: list[Sample], precision: Precision, **options: Any) -> Any:
    lower, exact = loaded(folder, precision=precision, **options), loaded(folder, pack=False)
    return closeness.verify(lower, Layout.of(lower), resolve_buckets(lower, None), samples, precision, exact=exact)


@pytest.mark.parametrize("precision", LOWER)
def test_without_golden_answers_the_program_as_exported_answers(classifier: Path, precision: Precision) -> None:
    examples = [Sample((torch.randn(7, WIDE),), ()), Sample((torch.randn(1, WIDE),), ())]
    report = judged(classifier, examples, precision)
    assert (report.samples, report.agrees) == (2, True)
    assert 0 < report.largest_difference < 1
    assert report.message.startswith(f"{precision.value}, 2 example inputs: ")
    assert "output scores is off by " in report.message


def test_golden_answers_count_and_not_example_inputs(classifier: Path) -> None:
    x = torch.randn(3, WIDE, generator=torch.Generator().manual_seed(1))  # of some rows the best label is a near tie
    scores, best = loaded(classifier, pack=False).run([x])
    near = [Sample((x,), (scores, best)), Sample((x,), ())]
    assert judged(classifier, near, Precision.BFLOAT16).message.startswith("BFloat16, 1 golden sample: ")
    far = [Sample((x,), (scores * 1.05, best)), Sample((x,), ())]
    with pytest.raises(FatalError, match=r"output scores is off by 0\.0\d+ of its size") as raised:
        judged(classifier, far, Precision.BFLOAT16)
    assert "at most 0.02 is allowed" in raised.value.message
    assert judged(classifier, far, Precision.INT8).agrees


@pytest.mark.parametrize("samples", [[], [Sample((torch.randn(64, WIDE),), ())]], ids=["none", "too large"])
def test_what_nothing_shows_is_refused(classifier: Path, samples: list[Sample]) -> None:
    with pytest.raises(FatalError, match="neither golden samples nor example inputs that this pod admits") as raised:
        judged(classifier, samples, Precision.INT8)
    assert (raised.value.reason, raised.value.condition) == ("PrecisionRefused", "Accepted")


def test_answers_without_a_number_show_nothing(tmp_path: Path) -> None:
    folder = prepare(plain(Nothing(), torch.randn(2, WIDE), tmp_path / "m.pt2"), tmp_path / "prepared")
    with pytest.raises(FatalError, match="and answers with numbers") as raised:
        judged(folder, [Sample((torch.randn(2, WIDE),), ())], Precision.INT8)
    assert raised.value.reason == "PrecisionRefused"


def test_an_example_input_that_the_program_cannot_answer_is_said(tmp_path: Path) -> None:
    inputs = {"ids": proof_models.ids(), "mask": proof_models.mask()}
    folder = prepare(proof_models.export(Words(0.0), inputs, tmp_path / "m.pt2"), tmp_path / "prepared")
    unknown = torch.full((1, 9), proof_models.WORDS)
    with pytest.raises(FatalError, match="sample 0: the program failed: ") as raised:
        judged(folder, [Sample((unknown, torch.ones_like(unknown)), ())], Precision.INT8)
    assert raised.value.reason == "ParityFailed"


def test_a_sample_for_which_memory_is_lacking_is_no_other_answer(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Program, "run", full)
    with pytest.raises(FatalError, match="running sample 0: not enough memory") as raised:
        judged(classifier, [Sample((torch.randn(2, WIDE),), ())], Precision.INT8)
    assert (raised.value.reason, raised.value.field) == ("OutOfMemory", "spec.template.resources")


def named(found: proof_models.Opened, **options: Any) -> Program:
    return load_program(found.directory, dimension_names={"sequence": "ids.1"}, **options)


@pytest.mark.parametrize(("leak", "verdict"), [(0.0, Verdict.PROVEN), (0.003, Verdict.FAILED)])
def test_padding_is_tried_where_rounding_hides_nothing(tmp_path: Path, leak: float, verdict: Verdict) -> None:
    """The leak changes answers by far less than `Int8` does, and is found all the same."""
    found = words(tmp_path, leak)
    exact, lower = (named(found, pack=False), named(found, precision=Precision.INT8))
    asked = replace(found.request(), program=lower, exact=exact, rounding=MOST_ERROR[Precision.INT8])
    verdicts = {}
    for name, request in (("both", asked), ("as it is kept", replace(asked, exact=None))):
        with torch.inference_mode():
            layout, (report,) = prove_padding(request, Padding.AUTO, warm_seconds=60)
        verdicts[name] = report.verdict
        assert layout.padded == (("sequence",) if report.verdict is Verdict.PROVEN else ())
    assert verdicts == {"both": verdict, "as it is kept": Verdict.PROVEN}


def words(folder: Path, leak: float) -> proof_models.Opened:
    inputs = {"ids": proof_models.ids(), "mask": proof_models.mask()}
    file = proof_models.export(Words(leak), inputs, folder / "m.pt2")
    return proof_models.opened(file, buckets=proof_models.BUCKETS, dimensions={"sequence": "ids.1"})


def test_both_trials_are_told(tmp_path: Path) -> None:
    found = words(tmp_path, 0.0)
    lower = named(found, precision=Precision.BFLOAT16)
    asked = Request(lower, found.layout, found.buckets, found.material, found.document, found.program, 0.02)
    with torch.inference_mode():
        _, (report,) = prove_padding(asked, Padding.AUTO, warm_seconds=60)
    assert report.message.count("were filled up to 128") == 2
    assert "; then, as it is kept, " in report.message


def config(**parts: Any) -> ColdConfig:
    cold = {"model": "m", "namespace": "n", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    return ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}, **parts})


@pytest.mark.parametrize("precision", list(Precision))
def test_packed_weights_are_counted_once_against_the_memory(
    classifier: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has them already, and they are among the weights: what is asked for is exact to a byte."""
    program = loaded(classifier, precision=precision)
    _, document = read_document(classifier)
    buckets = resolve_buckets(program, {"batch": [1, 16]})
    peak = ShapeGate(document, program).measure({"batch": 16}).peak
    others = 50 << 20
    need = others + program.weights_bytes + peak
    monkeypatch.setattr(memory, "in_use", lambda: others + program.packed)
    monkeypatch.setattr(memory, "bound_allocations", lambda _: 0)

    def check(room: int) -> None:
        monkeypatch.setattr(memory, "host_room", lambda: Room(room, "the limit"))
        opened._check(config(precision=precision), document, program, buckets)

    check(need)
    with pytest.raises(FatalError) as raised:
        check(need - 1)
    assert raised.value.reason == "WillNotFit"


def test_less_memory_is_enough_for_a_lower_precision(classifier: Path) -> None:
    needs = [loaded(classifier, precision=each).weights_bytes for each in (*LOWER, Precision.EXPORTED)]
    exported, saved = needs[-1], 2 * WIDE * WIDE * 4
    assert needs[0] < exported - 0.4 * saved
    assert needs[1] < needs[0] - 0.2 * saved


def test_a_precision_that_this_processor_is_slower_in_is_told(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(quicker, "log", lambda event, **_: told.append(event))
    monkeypatch.setattr(quicker.library, "native", lambda: None)
    quicker.quicker.cache_clear()
    try:
        loaded(classifier, precision=Precision.BFLOAT16)
    finally:
        quicker.quicker.cache_clear()
    assert told == ["lower_precision_is_slower", "weights_packed"]


def test_the_page_gives_the_limits_of_the_code_and_a_manifest() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/precision.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    assert Spec.model_validate(yaml.safe_load(block)["spec"]).precision is Precision.INT8
    of = [f"{MOST_ERROR[each]:g}" for each in LOWER]
    assert f"in each sample, at most | {of[0]} | {of[1]} |" in page
    shares = [f"{LEAST_EQUAL[each]:.0%}".replace("%", " %") for each in LOWER]
    assert page.count(f" | {shares[0]} | {shares[1]} |") == 2
    assert f"at least {quicker.NARROWEST} rows and columns and {quicker.LEAST:,} numbers" in page
