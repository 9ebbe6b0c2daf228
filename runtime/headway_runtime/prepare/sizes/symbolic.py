"""The text of a symbolic size in a ``.pt2`` (sympy's ``srepr``) into our own expression. Nothing is evaluated.

    Add(Integer(4), Mul(Integer(-1), Mod(Symbol('s27', positive=True, integer=True), Integer(4))))

torch hands such a string to ``sympify``, which is Python's ``eval``. Here a tokenizer knows four kinds of token, the
parser knows the functions in the table below, and length, depth and every number are bounded.
"""

import math
import re

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex

MAX_LENGTH = 4096
MAX_DEPTH = 24
MAX_TERMS = 256

_TOKEN = re.compile(
    r"\s*(?:([A-Za-z_][A-Za-z0-9_]{0,63})|(-?[0-9]{1,19})|'([A-Za-z0-9_.+-]{1,64})'|([(),=]))", re.ASCII
)
_NAME, _INT, _TEXT, _MARK = 1, 2, 3, 4
_SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,9}\Z", re.ASCII)
_ASSUMPTIONS = {"positive", "integer", "nonnegative", "real"}

# sympy's and torch's function -> ours, with the number of arguments (None: one or more)
_FUNCTIONS: dict[str, tuple[str, int | None]] = {
    "Add": ("add", None),
    "Mul": ("mul", None),
    "Max": ("max", None),
    "Min": ("min", None),
    "Mod": ("mod", 2),
    "PythonMod": ("mod", 2),
    "FloorDiv": ("floordiv", 2),
    "CleanDiv": ("floordiv", 2),
    "CeilDiv": ("ceildiv", 2),
    "IntTrueDiv": ("truediv", 2),
    "FloatTrueDiv": ("truediv", 2),
    "ToFloat": ("float", 1),
    "TruncToInt": ("trunc", 1),
    "FloorToInt": ("floor", 1),
    "CeilToInt": ("ceil", 1),
    "RoundToInt": ("round", 1),
    "Where": ("where", 3),
    "Abs": ("abs", 1),
    "Equality": ("eq", 2),
    "Unequality": ("ne", 2),
    "GreaterThan": ("ge", 2),
    "LessThan": ("le", 2),
    "StrictGreaterThan": ("gt", 2),
    "StrictLessThan": ("lt", 2),
    "And": ("and", None),
    "Or": ("or", None),
    "Not": ("not", 1),
}


def parse(text: str) -> ex.Expr:
    """Expression over the file's own symbol names. Raises Refusal ``expression.*``."""
    if len(text) > MAX_LENGTH:
        raise Refusal("expression.size", f"{len(text)} characters")
    try:
        return _Parser(text).whole()
    except ex.EvaluationError as e:
        raise Refusal("expression.number", e) from e


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[int, str]] = []
        self.at = 0
        self.terms = 0
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastindex is None:
                raise Refusal("expression.syntax", text[position : position + 40])
            self.tokens.append((match.lastindex, match.group(match.lastindex)))
            position = match.end()

    def whole(self) -> ex.Expr:
        expr = self.term(0)
        if self.at != len(self.tokens):
            raise Refusal("expression.syntax", "text after the end")
        return expr

    def eat(self, kind: int, value: str | None = None) -> str:
        if (
            self.at >= len(self.tokens)
            or self.tokens[self.at][0] != kind
            or value not in (None, self.tokens[self.at][1])
        ):
            raise Refusal("expression.syntax", " ".join(t for _, t in self.tokens[max(0, self.at - 3) : self.at + 3]))
        self.at += 1
        return self.tokens[self.at - 1][1]

    def follows(self, mark: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] == (_MARK, mark)

    def term(self, depth: int) -> ex.Expr:
        self.terms += 1
        if depth > MAX_DEPTH or self.terms > MAX_TERMS:
            raise Refusal("expression.size", "nested too deeply, or too many terms")
        function = self.eat(_NAME)
        if function in {"true", "false"}:
            return ex.const(function == "true")
        self.eat(_MARK, "(")
        expr = self.arguments(function, depth)
        self.eat(_MARK, ")")
        return expr

    def arguments(self, function: str, depth: int) -> ex.Expr:
        if function == "Symbol":
            return self.symbol()
        if function == "Integer":
            return ex.const(self.integer())
        if function == "Rational":
            numerator, _, denominator = self.integer(), self.eat(_MARK, ","), self.integer()
            if denominator == 0:
                raise Refusal("expression.number", "denominator 0")
            return ex.call("ratio", ex.const(numerator), ex.const(denominator))
        if function == "Float":
            return self.floating()
        if function in {"Pow", "PowByNatural", "FloatPow"}:
            base, _, exponent = self.term(depth + 1), self.eat(_MARK, ","), self.term(depth + 1)
            kinds = int | float if function == "FloatPow" else int
            if exponent.operator != "const" or not isinstance(exponent.value, kinds) or not -8 <= exponent.value <= 8:
                raise Refusal("expression.number", "only small constant exponents")
            return ex.call("pow", base, exponent)
        if function == "Piecewise":
            return self.piecewise(depth)
        if function == "Identity":
            return self.term(depth + 1)
        if function not in _FUNCTIONS:
            raise Refusal("expression.function", function)
        name, arity = _FUNCTIONS[function]
        args = [self.term(depth + 1)]
        while self.follows(","):
            self.eat(_MARK, ",")
            args.append(self.term(depth + 1))
        if arity is not None and len(args) != arity:
            raise Refusal("expression.syntax", f"{function} of {len(args)} arguments")
        return ex.call(name, *args)

    def piecewise(self, depth: int) -> ex.Expr:
        """Pairs of a value and its condition; the last condition is ``true``."""
        pairs = [self.pair(depth)]
        while self.follows(","):
            self.eat(_MARK, ",")
            pairs.append(self.pair(depth))
        expr, always = pairs.pop()
        if always != ex.const(True):
            raise Refusal("expression.syntax", "a Piecewise without a value for all other cases")
        for value, condition in reversed(pairs):
            expr = ex.call("where", condition, value, expr)
        return expr

    def pair(self, depth: int) -> tuple[ex.Expr, ex.Expr]:
        self.eat(_NAME, "ExprCondPair")
        self.eat(_MARK, "(")
        value, _, condition = self.term(depth + 1), self.eat(_MARK, ","), self.term(depth + 1)
        self.eat(_MARK, ")")
        return value, condition

    def symbol(self) -> ex.Expr:
        name = self.eat(_TEXT)
        if not _SYMBOL.match(name):
            raise Refusal("expression.symbol", name)
        while self.follows(","):
            self.eat(_MARK, ",")
            if self.eat(_NAME) not in _ASSUMPTIONS:
                raise Refusal("expression.symbol", name)
            self.eat(_MARK, "=")
            self.eat(_NAME, "True")
        return ex.symbol(name)

    def integer(self) -> int:
        value = int(self.eat(_INT))
        if abs(value) >= 2**62:
            raise Refusal("expression.number", value)
        return value

    def floating(self) -> ex.Expr:
        text = self.eat(_TEXT)
        self.eat(_MARK, ",")
        self.eat(_NAME, "precision")
        self.eat(_MARK, "=")
        self.eat(_INT)
        if not re.match(r"-?[0-9]{1,20}(\.[0-9]{0,40})?(e[+-]?[0-9]{1,3})?\Z", text, re.ASCII):
            raise Refusal("expression.number", text)
        if not math.isfinite(value := float(text)):
            raise Refusal("expression.number", text)
        return ex.const(value)
