"""Symbolic sizes and guards as our own values: data to be evaluated by a small total function, never source text.

An expression is a constant, a symbol (one axis size), or a call of one of ``OPERATORS``. JSON form, as it stands in
``program.json``: ``3``, ``2.5``, ``true``, ``"s0"``, ``["mul", 8, "s0"]``. Arithmetic is Python's on exact integers
and fractions (floats only where torch itself computes in floats), so the evaluation of a guard never wraps around.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Number = int | float | Fraction | bool

MAX_BITS = 512
"""Largest intermediate integer. Sizes have 63 bits; a guard multiplies a handful of them."""


MAX_DEPTH = 200
"""Nesting that :func:`from_json` reads; the parsers of sizes and guards stay far below it."""


class EvaluationError(ArithmeticError):
    """The expression has no value for these sizes: division by zero, or a number out of all proportion."""


@dataclass(frozen=True, slots=True)
class Expr:
    """``operator`` is ``"const"``, ``"symbol"`` or a key of ``OPERATORS``; ``value`` is set for the first two."""

    operator: str
    args: tuple["Expr", ...] = ()
    value: int | float | bool | str = 0

    def __str__(self) -> str:
        return render(self)

    def symbols(self) -> frozenset[str]:
        """Names of all symbols in it."""
        return frozenset(str(e.value) for e in walk(self) if e.operator == "symbol")

    def is_symbol(self, name: str) -> bool:
        """Whether it is exactly this symbol."""
        return self.operator == "symbol" and self.value == name


def const(value: float | bool) -> Expr:
    return Expr("const", value=value)


def symbol(name: str) -> Expr:
    return Expr("symbol", value=name)


def call(name: str, *args: Expr) -> Expr:
    """A call; constant arguments are folded where that is exact, so that ``8*4`` needs no evaluation later."""
    if name in _ASSOCIATIVE:
        args = tuple(inner for a in args for inner in (a.args if a.operator == name else (a,)))
    expr = Expr(name, args)
    if name in _FOLDABLE and all(a.operator == "const" and isinstance(a.value, int) for a in args):
        return const(_checked(OPERATORS[name].apply(*(a.value for a in args))))
    return expr


@dataclass(frozen=True, slots=True)
class Operator:
    """``arity`` is the exact number of arguments, or None for one or more; ``text`` how it prints."""

    apply: Callable[..., Any]
    arity: int | None
    text: str


def _product(*args: Any) -> Any:
    return math.prod(args)


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > 64:
        raise EvaluationError("exponent out of range")
    if isinstance(exponent, float):
        if base < 0:
            raise EvaluationError("a root of a negative number")
        return float(base) ** exponent
    return Fraction(base) ** exponent if exponent < 0 else base**exponent


OPERATORS: dict[str, Operator] = {
    "add": Operator(lambda *a: sum(a), None, " + "),
    "sub": Operator(operator.sub, 2, " - "),
    "mul": Operator(_product, None, "*"),
    "neg": Operator(operator.neg, 1, "-"),
    "floordiv": Operator(operator.floordiv, 2, "//"),
    "ceildiv": Operator(lambda a, b: -(-a // b), 2, "ceildiv"),
    "truediv": Operator(lambda a, b: float(a) / float(b), 2, "/"),
    "ratio": Operator(Fraction, 2, "ratio"),
    "mod": Operator(operator.mod, 2, " % "),
    "pow": Operator(_power, 2, "**"),
    "abs": Operator(abs, 1, "abs"),
    "max": Operator(max, None, "max"),
    "min": Operator(min, None, "min"),
    "where": Operator(lambda c, a, b: a if c else b, 3, "where"),
    "float": Operator(float, 1, "float"),
    "trunc": Operator(math.trunc, 1, "trunc"),
    "floor": Operator(math.floor, 1, "floor"),
    "ceil": Operator(math.ceil, 1, "ceil"),
    "round": Operator(round, 1, "round"),
    "eq": Operator(operator.eq, 2, " == "),
    "ne": Operator(operator.ne, 2, " != "),
    "lt": Operator(operator.lt, 2, " < "),
    "le": Operator(operator.le, 2, " <= "),
    "gt": Operator(operator.gt, 2, " > "),
    "ge": Operator(operator.ge, 2, " >= "),
    "and": Operator(lambda *a: all(a), None, " and "),
    "or": Operator(lambda *a: any(a), None, " or "),
    "not": Operator(operator.not_, 1, "not "),
}
_FOLDABLE = {"add", "sub", "mul", "neg"}
_ASSOCIATIVE = {"add", "mul", "and", "or"}
_INFIX = {n for n, o in OPERATORS.items() if n not in {"neg", "not"} and not o.text[0].isalpha()}


def walk(expr: Expr) -> Iterator[Expr]:
    """Every sub-expression, itself first."""
    todo = [expr]
    while todo:
        e = todo.pop()
        yield e
        todo.extend(reversed(e.args))


def evaluate(expr: Expr, sizes: Mapping[str, int]) -> Number:
    """Value for these sizes. Raises EvaluationError when there is none, KeyError for a symbol without a size."""
    if expr.operator == "const":
        return expr.value  # type: ignore[return-value]  # a constant's value is never a name
    if expr.operator == "symbol":
        return sizes[str(expr.value)]
    args = [evaluate(a, sizes) for a in expr.args]
    try:
        value: Number = _checked(OPERATORS[expr.operator].apply(*args))
        return value
    except (ArithmeticError, ValueError, TypeError) as e:
        raise EvaluationError(f"{render(expr)} has no value: {e}") from e


def _checked(value: Any) -> Any:
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value)
    if isinstance(value, int | Fraction) and max(value.numerator, value.denominator, key=abs).bit_length() > MAX_BITS:
        raise EvaluationError("number too large")
    return value


def render(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """Readable infix text; ``names`` replaces symbols by the author's dimension names."""
    if expr.operator == "const":
        return str(expr.value)
    if expr.operator == "symbol":
        return (names or {}).get(str(expr.value), str(expr.value))
    parts = [render(a, names) for a in expr.args]
    text = OPERATORS[expr.operator].text
    if expr.operator in {"neg", "not"}:
        return f"{text}({parts[0]})"
    if expr.operator in _INFIX:
        grouped = (f"({p})" if a.operator in _INFIX else p for p, a in zip(parts, expr.args, strict=True))
        return text.join(grouped)
    return f"{text}({', '.join(parts)})"


def to_json(expr: Expr) -> Any:
    """The JSON form described at the top of this file."""
    return expr.value if expr.operator in {"const", "symbol"} else [expr.operator, *(to_json(a) for a in expr.args)]


def from_json(data: Any, *, depth: int = 0) -> Expr:
    """Inverse of :func:`to_json`. Raises ValueError for anything else."""
    if isinstance(data, (bool, int, float)):
        return const(data)
    if isinstance(data, str):
        return symbol(data)
    if not isinstance(data, list) or len(data) < 2 or data[0] not in OPERATORS or depth > MAX_DEPTH:
        raise ValueError("not an expression")
    arity = OPERATORS[data[0]].arity
    if arity is not None and arity != len(data) - 1:
        raise ValueError(f"{data[0]} takes {arity} arguments")
    return Expr(data[0], tuple(from_json(a, depth=depth + 1) for a in data[1:]))
