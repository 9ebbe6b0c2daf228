"""NAME=VALUE on the command line: repeated options, and the steps of a record in one option each."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from headway_runtime.prepare.beside.steps import Steps

Fact = str | int | float | bool

_LISTS = ("mean", "std")


def read(texts: Sequence[str] | None, option: str) -> Iterator[tuple[str, str]]:
    """Each text apart at its first ``=``."""
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
        yield name, value


def number(text: str, option: str) -> float:
    """A number."""
    value = fact(text)
    if isinstance(value, str):
        raise typer.BadParameter(f"{text!r} is no number", param_hint=option)
    return value


def fact(text: str) -> Fact:
    """``224``, ``0.5``, ``true``, or text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def steps(**given: str | None) -> "Steps":
    """The steps, as in ``text="ids=ids,mask=mask"``: they may say what the record may. Raises ExportError."""
    from headway_runtime.export.errors import ExportError
    from headway_runtime.prepare.beside.steps import Steps, parse
    from headway_runtime.prepare.errors import Refusal

    asked = {
        step: {key: _value(key, value) for key, value in read(text.split(","), f"--{step}")}
        for step, text in given.items()
        if text is not None
    }
    try:
        return parse(asked) if asked else Steps()
    except Refusal as refusal:
        where = refusal.path.removeprefix("$.")
        raise ExportError(f"the step {where}: {refusal.detail or refusal.message}") from None


def _value(key: str, text: str) -> Any:
    """``224x256`` is [224, 256], ``0.5:0.5`` is [0.5, 0.5], ``null`` is nothing."""
    if text == "null":
        return None
    edges = text.split("x")
    if len(edges) == 2 and all(edge.isdigit() for edge in edges):
        return [int(edge) for edge in edges]
    if key in _LISTS:
        return [fact(part) for part in text.split(":")]
    return fact(text)
