"""Values that are made for every request: what they have in common with frozen ones."""

from dataclasses import field, replace

import pytest
from headway_runtime.light import light


@light
class Point:
    x: int
    names: tuple[str, ...] = field(default_factory=tuple)


def test_equal_fields_make_equal_values_and_equal_hashes() -> None:
    assert Point(1, ("a",)) == Point(1, ("a",)) != Point(2, ("a",))
    assert len({Point(1), Point(1), Point(2)}) == 2


def test_another_value_is_made_of_one_and_leaves_it_as_it_was() -> None:
    point = Point(1)
    assert replace(point, x=2) == Point(2)
    assert point == Point(1)


def test_it_has_its_fields_and_no_others() -> None:
    with pytest.raises(AttributeError):
        Point(1).y = 2  # type: ignore[attr-defined]
