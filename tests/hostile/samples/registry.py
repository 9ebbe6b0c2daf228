"""How samples are made and where they are entered: an honest MLP, altered in one place.

Each sample is a function from the honest entries and a marker path to the altered file. Names say what a checker
could miss.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, Entries

Build = Callable[[Path, Entries, Path], Path]
SAMPLES: dict[str, tuple[str, Build]] = {}
"""(rule that refuses it, how it is made) by name."""


def sample(rule: str) -> Callable[[Build], Build]:
    """Enter a function into the list, by its name."""

    def enter(build: Build) -> Build:
        add(rule, build.__name__, build)
        return build

    return enter


def add(rule: str, name: str, build: Build) -> None:
    """Enter a sample."""
    assert name not in SAMPLES, name
    SAMPLES[name] = (rule, build)


def change(rule: str, name: str, alter: Callable[[Any], Any], record: str = MODEL) -> None:
    """Enter a sample that changes one JSON record."""
    add(rule, name, lambda out, entries, marker: ar.write(out, ar.altered(entries, alter, record)))


def replaced(rule: str, name: str, record: str, data: bytes) -> None:
    """Enter a sample with one record more, or another in its place."""
    add(rule, name, lambda out, entries, marker: ar.write(out, {**entries, record: data}))


def graph(document: Any) -> Any:
    """The main graph of a program."""
    return document["graph_module"]["graph"]


def argument(name: str, **member: Any) -> dict[str, Any]:
    """An argument of a node."""
    return {"name": name, "arg": member, "kind": 1}


def sizes(*numbers: int) -> list[dict[str, int]]:
    """Fixed sizes, strides or an offset."""
    return [{"as_int": n} for n in numbers]


def all_entries(entries: Entries) -> list[ar.Entry]:
    """The entries as bytes, each field open to alteration."""
    return [ar.Entry(f"m/{name}", data) for name, data in entries.items()]


def entry(rule: str, name: str, alter: Callable[[list[ar.Entry]], Any]) -> None:
    """Enter a sample that alters how entries are written."""

    def build(out: Path, entries: Entries, marker: Path) -> Path:
        items = all_entries(entries)
        alter(items)
        return ar.raw(out, items)

    add(rule, name, build)
