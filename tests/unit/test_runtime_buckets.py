"""Which buckets a program gets: the user's, checked, and defaults in its range."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from headway_runtime.buckets import MAX_COMBINATIONS, Admission, Buckets, resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.program import Dimension
from hypothesis import given
from hypothesis import strategies as st


@dataclass
class Facts:
    """The facts of a program that buckets depend on. `odd`: sizes of `batch` that its guards forbid."""

    ranges: Mapping[str, tuple[int, int | None]]
    batch: str | None = "batch"
    not_batchable: str | None = None
    odd: frozenset[int] = frozenset()
    dimensions: dict[str, Dimension] = field(init=False)

    def __post_init__(self) -> None:
        self.dimensions = {n: Dimension(f"s{i}", n, *r) for i, (n, r) in enumerate(self.ranges.items())}

    def check(self, sizes: Mapping[str, int]) -> str | None:
        return f"batch {sizes['batch']} is odd" if sizes.get("batch") in self.odd else None


def resolve(facts: Facts, asked: Mapping[str, list[int]] | None = None) -> Buckets:
    return resolve_buckets(facts, asked)  # type: ignore[arg-type]  # the facts are all it reads of a program


@pytest.mark.parametrize(
    ("bounds", "batch", "other"),
    [
        ((1, None), (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
        ((1, 20), (1, 2, 4, 8, 16, 20), (1, 2, 4, 8, 16, 20)),
        ((3, 9), (4, 8, 9), (4, 8, 9)),
        ((7, 7), (7,), (7,)),
        ((100, 120), (100,), (120,)),
        ((0, 1), (1,), (1,)),
    ],
)
def test_defaults_are_powers_of_two_in_range_and_the_ceiling(
    bounds: tuple[int, int | None], batch: tuple[int, ...], other: tuple[int, ...]
) -> None:
    assert resolve(Facts({"batch": bounds})).sizes == {"batch": batch}
    assert resolve(Facts({"other": bounds}, batch=None)).sizes == {"other": other}


def test_what_the_user_lists_is_taken_ascending_and_warmed_largest_first() -> None:
    buckets = resolve(Facts({"batch": (1, 64), "sequence": (1, 128)}), {"batch": [8, 1], "sequence": [32, 64]})
    assert buckets.sizes == {"batch": (1, 8), "sequence": (32, 64)}
    assert [tuple(c.values()) for c in buckets.combinations] == [(8, 64), (8, 32), (1, 64), (1, 32)]
    assert buckets.largest("batch") == 8


@pytest.mark.parametrize(
    ("facts", "asked", "reason", "where", "says"),
    [
        (Facts({"batch": (1, 64)}), {"batch": [1, 65]}, "BucketOutOfRange", ".batch", "65 is outside .*, 1 to 64"),
        (Facts({"batch": (2, None)}), {"batch": [1]}, "BucketOutOfRange", ".batch", "2 or more"),
        (Facts({"batch": (1, 64)}), {"width": [1]}, "UnknownDimension", ".width", "its dimensions are batch"),
        (Facts({}, batch=None), {"width": [1]}, "UnknownDimension", ".width", "every size is fixed"),
        (Facts({"n": (1, 8)}, batch=None, not_batchable="sums"), {"batch": [1]}, "NotBatchable", ".batch", "sums"),
        (Facts({"batch": (1, 8)}, odd=frozenset({3})), {"batch": [2, 3]}, "BucketOutOfRange", "", "batch 3 is odd"),
        (Facts({"batch": (1, 8)}, odd=frozenset(range(9))), None, "BucketOutOfRange", "", "list some that do"),
        (
            Facts({"batch": (1, 64), "b": (1, 64)}),
            {"batch": list(range(1, 10)), "b": list(range(1, 10))},
            "BucketOutOfRange",
            "",
            "81 combinations; at most 64",
        ),
    ],
)  # fmt: skip
def test_what_the_program_cannot_honour_is_refused_with_the_field(
    facts: Facts, asked: dict[str, list[int]] | None, reason: str, where: str, says: str
) -> None:
    with pytest.raises(FatalError, match=says) as refusal:
        resolve(facts, asked)
    assert (refusal.value.condition, refusal.value.reason) == ("Accepted", reason)
    assert refusal.value.field == f"spec.batching.shapeBuckets{where}"


def test_default_sizes_that_the_guards_forbid_are_left_out() -> None:
    buckets = resolve(Facts({"batch": (1, 8)}, odd=frozenset({1})))
    assert [c["batch"] for c in buckets.combinations] == [8, 4, 2]


def test_a_size_is_covered_by_the_smallest_bucket_that_holds_it() -> None:
    buckets = resolve(Facts({"batch": (1, 64), "sequence": (1, 64)}), {"batch": [1, 8], "sequence": [16, 64]})
    assert buckets.covering({"batch": 2, "sequence": 16}) == {"batch": 8, "sequence": 16}
    assert buckets.covering({"batch": 9, "sequence": 1}) == {"batch": 8, "sequence": 16}


def test_beyond_the_largest_bucket_is_refused_or_runs_alone_as_far_as_there_is_memory() -> None:
    facts = Facts({"batch": (1, 64), "sequence": (1, 512)})
    buckets = resolve(facts, {"batch": [1, 8], "sequence": [16, 64]})
    assert buckets.admission({"batch": 8, "sequence": 64}) is Admission.ADMITTED
    assert buckets.admission({"batch": 1, "sequence": 65}) is Admission.REFUSED
    refusal = "sequence is 65; at most 64 is admitted, the largest of spec.batching.shapeBuckets.sequence"
    assert buckets.refusal({"batch": 1, "sequence": 65}) == refusal
    wider = replace(buckets, ceilings={"batch": None, "sequence": 200})
    assert wider.admission({"batch": 64, "sequence": 64}) is Admission.OVERSIZE
    assert wider.admission({"batch": 1, "sequence": 200}) is Admission.OVERSIZE
    assert wider.refusal({"batch": 64, "sequence": 200}) is None
    assert wider.admission({"sequence": 201}) is Admission.REFUSED
    refusal = "sequence is 201; at most 200 is admitted, for which this pod has the memory"
    assert wider.refusal({"sequence": 201}) == refusal


def test_a_size_that_turns_out_not_to_run_is_taken_out() -> None:
    buckets = resolve(Facts({"batch": (1, 64), "sequence": (1, 64)}), {"batch": [1, 8], "sequence": [16, 64]})
    fewer = buckets.without("batch", 1)
    assert fewer.sizes == {"batch": (8,), "sequence": (16, 64)}
    assert [tuple(c.values()) for c in fewer.combinations] == [(8, 64), (8, 16)]


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=5))
def test_defaults_of_any_program_are_few_and_within_its_ranges(bounds: list[tuple[int, int]]) -> None:
    ranges = {f"d{i}": (low, max(1, low + more)) for i, (low, more) in enumerate(bounds)}
    buckets = resolve(Facts(ranges, batch="d0"))
    assert 1 <= len(buckets.combinations) <= MAX_COMBINATIONS
    for name, (low, high) in ranges.items():
        cap = 32 if name == "d0" else 512
        assert all(low <= size <= high for size in buckets.sizes[name])
        assert buckets.largest(name) == max(low, min(high, cap), 1), "the ceiling stays, however few are left"
