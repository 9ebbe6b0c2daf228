"""The CPU limit of a container, from either version of cgroups."""

import os
from pathlib import Path

import pytest
from headway_runtime.processors import compute_threads, cpu_limit


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.25),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_the_quota_is_read_and_never_exceeds_the_processors_there_are(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    available = len(os.sched_getaffinity(0))
    assert cpu_limit(tmp_path) == (available if quota is None else min(quota, available))


def test_a_quota_of_more_than_there_are_gives_what_there_are(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("99900000 100000")
    assert cpu_limit(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("limit", "threads"), [(0.25, 1), (1.0, 1), (2.9, 2), (8.0, 8)])
def test_an_engine_gets_whole_processors_and_at_least_one(limit: float, threads: int) -> None:
    assert compute_threads(limit) == threads
