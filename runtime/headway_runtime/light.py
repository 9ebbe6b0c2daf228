"""Values that are made for every request."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def light(cls: type[T]) -> type[T]:
    """A dataclass that is frozen to the type checker, and a plain one with slots to Python (3.11): to be frozen there,
    too, makes it cost four times as much, and a named tuple costs half as much again, and its fields twice.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
