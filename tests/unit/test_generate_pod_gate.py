"""The golden gate: a real decoder and a real engine continue what the exporter recorded, or something else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from headway_api.podconfig import ColdVerification, ParityReport
from headway_api.types import OnMismatch, Precision
from headway_runtime.errors import FatalError
from headway_runtime.generation import gate
from headway_runtime.generation.opened import Opened
from headway_runtime.prepare.decoder import GoldenPrompt

from tests.unit.generator_desk import open_tiny, prepared

BLOCK, WARN = ColdVerification(), ColdVerification(on_mismatch=OnMismatch.WARN)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def found(directory: Path) -> Opened:
    return open_tiny(directory)


def verify(
    found: Opened,
    golden: Sequence[GoldenPrompt] | None = None,
    *,
    precision: Precision = Precision.EXPORTED,
    asked: ColdVerification = BLOCK,
) -> ParityReport | None:
    known = found.facts.decoder.golden if golden is None else golden
    return gate.verify(found.answer, known, precision, max_length=found.facts.max_length, asked=asked)


def with_another(prompt: GoldenPrompt, at: int, margin: float) -> GoldenPrompt:
    """As if the exporter had chosen another token there, by so little."""
    tokens, margins = list(prompt.tokens), list(prompt.margins)
    tokens[at], margins[at] = (tokens[at] + 1) % 384, margin
    return replace(prompt, tokens=tuple(tokens), margins=tuple(margins))


def test_what_the_exporter_recorded_is_continued_alone_and_together(found: Opened) -> None:
    report = verify(found)
    assert report is not None
    assert (report.samples, report.agrees, report.message) == (len(found.facts.decoder.golden), True, "")


def test_another_token_where_the_exporter_was_sure_fails_the_pod_with_its_place(found: Opened) -> None:
    golden = list(found.facts.decoder.golden)
    golden[1] = with_another(golden[1], 3, 0.5)
    with pytest.raises(FatalError) as raised:
        verify(found, golden)
    error = raised.value
    assert (error.reason, error.condition, error.field) == ("ParityFailed", "Ready", "spec.verification")
    told = f"token 3 is {golden[1].tokens[3] - 1}, golden is {golden[1].tokens[3]}, where its lead was 0.5"
    assert f"golden prompt 1, alone: {told}" in error.message
    assert f"with {len(golden) - 1} others" in error.message


def test_with_warn_it_serves_and_the_report_says_where_it_differs(found: Opened) -> None:
    golden = [with_another(found.facts.decoder.golden[0], 0, 0.5)]
    report = verify(found, golden, asked=WARN)
    assert report is not None
    assert not report.agrees
    assert "golden prompt 0, alone: token 0 is" in report.message


def test_where_two_tokens_were_equally_likely_another_one_is_a_tie(found: Opened) -> None:
    report = verify(found, [with_another(found.facts.decoder.golden[0], 2, gate.TIE / 2)])
    assert report is not None
    assert report.agrees


def test_prompts_that_all_begin_with_a_tie_agree_with_nothing(found: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may write margins of nothing beside any token."""
    told: list[str] = []
    monkeypatch.setattr(gate, "log", lambda event, **_: told.append(event))
    ties = [with_another(prompt, 0, 0.0) for prompt in found.facts.decoder.golden[:3]]
    assert verify(found, ties) is None
    assert told[-1] == "golden_prompts_say_nothing"
    report = verify(found, [*ties, found.facts.decoder.golden[3]])
    assert report is not None
    assert report.agrees


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.INT8])
def test_weights_of_lower_precision_that_no_golden_prompt_judges_are_refused(
    found: Opened, precision: Precision
) -> None:
    with pytest.raises(FatalError) as raised:
        verify(found, [], precision=precision)
    error = raised.value
    assert (error.reason, error.condition, error.field) == ("PrecisionRefused", "Accepted", "spec.precision")
    assert f"no golden prompt of at most {found.facts.max_length} tokens" in error.message


def test_golden_prompts_that_are_longer_than_a_sequence_may_be_are_left_out(found: Opened) -> None:
    long = GoldenPrompt(tuple(range(2, 300)) * 2, (5,))
    assert verify(found, [long]) is None
    assert verify(found, []) is None


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.INT8])
def test_weights_of_lower_precision_are_measured_token_by_token(directory: Path, precision: Precision) -> None:
    lower = open_tiny(directory, precision=precision)
    report = verify(lower, precision=precision)
    assert report is not None
    assert report.agrees
    assert report.largest_difference > 0, "they are not the exporter's weights"
    total = sum(len(prompt.tokens) for prompt in lower.facts.decoder.golden)
    assert f"of {total} golden tokens are the likeliest here, too" in report.message
    assert lower.kept.weights_bytes < open_tiny(directory).kept.weights_bytes


def test_weights_under_which_the_answers_are_others_are_refused_with_the_numbers(found: Opened) -> None:
    golden = [with_another(with_another(each, 1, 0.5), 2, 0.5) for each in found.facts.decoder.golden]
    with pytest.raises(FatalError) as raised:
        verify(found, golden, precision=Precision.INT8)
    error = raised.value
    assert (error.reason, error.condition, error.field) == ("PrecisionRefused", "Accepted", "spec.precision")
    assert "at least 90% are asked for" in error.message


def test_the_lead_of_a_golden_token_is_what_the_exporter_recorded(found: Opened) -> None:
    """Teacher forcing looks at the right places: with the exporter's weights every lead is the recorded one."""
    report = verify(found, precision=Precision.INT8)
    assert report is not None
    assert report.largest_difference < 1e-3
