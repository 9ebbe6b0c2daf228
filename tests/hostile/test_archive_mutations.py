"""Mutated archives: whatever the mutation, the inspector accepts or refuses by a rule that speaks of it, soon, and
nothing of the file is executed; what it accepts loads and runs, or says why not.

This is a sample of what ``python -m tests.hostile.mutate`` does 100,000 times.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile import archives as ar
from tests.hostile import mutate
from tests.hostile.forked import Forked

COUNT = 5000
BUDGET = 10.0
"""CPU seconds, for inspecting and for running each."""


@pytest.fixture(scope="module")
def report(exported: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> mutate.Report:
    bases = [mutate.base(ar.read(exported(name))) for name in ("mlp", "cond", "nested", "padded")]
    bases.append(mutate.decoder_base(tmp_path_factory.mktemp("decoder")))
    return mutate.mutate(bases, tmp_path_factory.mktemp("mutants"), count=COUNT, seed=7, run=50, budget=BUDGET)


def test_nothing_but_acceptance_and_refusal_comes_out_of_a_mutant(report: mutate.Report) -> None:
    assert report.findings == []


def test_the_mutations_reach_many_rules(report: mutate.Report) -> None:
    assert sum(report.outcomes.values()) > 300, "the machine is too busy for this test to mean anything"
    assert len(report.outcomes) > 20, report.outcomes
    assert 0 < report.outcomes["accepted"] < sum(report.outcomes.values()) / 2


def test_accepted_mutants_run(report: mutate.Report) -> None:
    assert report.ran["ran"] > 5, report.ran


def test_a_case_that_dies_hangs_or_grows_costs_that_case_alone() -> None:
    def work(number: int) -> int:
        if number == 1:
            os.abort()
        while number == 3:
            pass
        if number == 5:
            bytearray(1 << 40)
        return number

    forked = Forked(7, work, seconds=0.2, memory=1 << 40)
    deaths = [(death.number, death.fate) for death in forked.run()]
    assert deaths == [(1, "SIGABRT"), (3, "more than 0.2 s of CPU time"), (5, "exit 1")]
    assert list(forked.codes()) == [0, 255, 2, 255, 4, 255, 6]
