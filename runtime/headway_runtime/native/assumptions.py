"""What compiling took for granted of the sizes, as conditions of our own kind, and which of them a pod must check.

Recording a program assumes what export assumed; those conditions are kept. Lowering it adds some of its own, most of
them a choice between two correct ways (a layout that pays off from 16 rows on) made for the sizes of the example and
written down like any other. So each of these is tried: the library runs at sizes that break it (``trial``), and where
it answers as the machine does, the condition goes. One that no trial breaks is kept, and a pod checks it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch's own language for sizes

from headway_runtime.native.errors import CompileError
from headway_runtime.native.sizes import Sizes, Space
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes import symbolic


@dataclass(frozen=True, slots=True)
class Assumptions:
    """``kept``: to be checked by a pod, beside the program's own guards. ``broken``: each with sizes that the program
    allows and that break it, to be tried.
    """

    kept: tuple[ex.Expr, ...]
    broken: tuple[tuple[ex.Expr, Sizes], ...]


def sort(
    traced: Iterable[Any],
    lowered: Iterable[Any],
    *,
    symbols: Mapping[str, str],
    own: Iterable[ex.Expr],
    space: Space,
    narrowed: Iterable[ex.Expr] = (),
) -> Assumptions:
    """``traced`` and ``lowered`` are torch's conditions; ``symbols`` names their sizes; ``narrowed`` are kept as they
    are; ``own`` are the program's guards, which are checked anyway. Raises CompileError.
    """
    known = list(own)
    kept = [*narrowed, *_conditions(traced, symbols, known)]
    broken: list[tuple[ex.Expr, Sizes]] = []
    for condition in _conditions(lowered, symbols, known):
        sizes = space.breaking(condition)
        if sizes is None:
            kept.append(condition)
        else:
            broken.append((condition, sizes))
    return Assumptions(tuple(kept), tuple(broken))


def _conditions(found: Iterable[Any], symbols: Mapping[str, str], known: list[ex.Expr]) -> Iterable[ex.Expr]:
    for item in found:
        if item == sympy.true:
            continue
        condition = translate(item, symbols)
        if condition not in known:
            known.append(condition)
            yield condition


def translate(condition: Any, symbols: Mapping[str, str]) -> ex.Expr:
    """A condition of torch's (sympy) over the program's symbols. Raises CompileError when it cannot be said in ours:
    one that nobody checks must not be.
    """
    try:
        expr = symbolic.parse(sympy.srepr(condition))
    except Refusal as refusal:
        raise CompileError(
            f"compiling assumes something that a pod cannot check: {condition} ({refusal.detail})"
        ) from None
    if unknown := sorted(expr.symbols() - symbols.keys()):
        message = f"compiling assumes {condition}, and {unknown[0]} is no size of an input: it depends on data"
        raise CompileError(message)
    return _rename(expr, symbols)


def _rename(expr: ex.Expr, symbols: Mapping[str, str]) -> ex.Expr:
    if expr.operator == "symbol":
        return ex.symbol(symbols[str(expr.value)])
    return ex.Expr(expr.operator, tuple(_rename(a, symbols) for a in expr.args), expr.value)
