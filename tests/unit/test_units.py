"""Durations and sizes: what a manifest may say, and what it means."""

import pytest
from headway_api.units import format_duration, parse_duration, parse_size
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0ms", 0), ("2ms", 0.002), ("1.5s", 1.5), ("1m30s", 90), ("24h", 86_400), ("250us", 0.00025)],
)
def test_durations_mean_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-12)


@pytest.mark.parametrize("text", ["", "2", "ms", "2 ms", "-1s", "1d", "2ms ", "1e3s"])
def test_what_is_no_duration_is_refused_with_the_field_and_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.batching\.maxWait: .* is not a duration; write .* 2ms"):
        parse_duration(text, "spec.batching.maxWait")


@given(st.integers(0, 10**12))
def test_a_formatted_duration_means_the_same_microseconds(micros: int) -> None:
    assert round(parse_duration(format_duration(micros / 1e6)) * 1e6) == micros


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("1k", 1000),
        ("64Mi", 64 << 20),
        ("1.5Gi", 3 << 29),
        ("9" * 15 + "Ti", 999_999_999_999_999 << 40),
    ],
)
def test_sizes_mean_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "-1", "1 Mi", "1MB", "1m", "9" * 16, f"1.{'0' * 7}k"])
def test_what_is_no_size_is_refused_with_the_field_and_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.batching\.queue\.bytes: .* is not a size; write .* 64Mi"):
        parse_size(text, "spec.batching.queue.bytes")
