"""Symbolic sizes and guards: read by our own parsers, evaluated by our own evaluator, equal to what Python and sympy
say.
"""

import contextlib
import random

import pytest
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes import guards, symbolic
from hypothesis import given
from hypothesis import strategies as st

SHAPES = {
    ("x",): (ex.symbol("s0"), ex.symbol("s1")),
    ("batch", "ids"): (ex.symbol("s0"), ex.const(4)),
    ("args", 0): (ex.call("mul", ex.const(2), ex.symbol("s0")),),
}
SIZES = {"s0": 6, "s1": 35}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Symbol('s0', positive=True, integer=True)", 6),
        ("Integer(-7)", -7),
        ("Add(Integer(4), Mul(Integer(-1), Mod(Symbol('s1', positive=True, integer=True), Integer(4))))", 4 - 35 % 4),
        ("FloorDiv(Symbol('s1'), Integer(8))", 4),
        ("CeilDiv(Symbol('s1'), Integer(8))", 5),
        ("Max(Integer(1), Min(Symbol('s0'), Symbol('s1')))", 6),
        ("Mul(Rational(1, 2), Symbol('s0'))", 3),
        ("Pow(Symbol('s0'), Integer(2))", 36),
        ("TruncToInt(FloatPow(ToFloat(Symbol('s1')), Float('0.5', precision=53)))", 5),
        ("TruncToInt(IntTrueDiv(Symbol('s1'), Integer(2)))", 17),
        ("FloorToInt(Mul(Float('2.5', precision=53), ToFloat(Symbol('s0'))))", 15),
        ("GreaterThan(Symbol('s1'), Integer(35))", True),
        ("And(Equality(Symbol('s0'), Integer(6)), Not(Unequality(Symbol('s1'), Integer(35))))", True),
        (
            "Piecewise(ExprCondPair(Integer(1), Equality(Symbol('s0'), Integer(5))), ExprCondPair(Symbol('s1'), true))",
            35,
        ),
        (
            "Piecewise(ExprCondPair(Integer(1), Equality(Symbol('s0'), Integer(6))), ExprCondPair(Symbol('s1'), true))",
            1,
        ),
        ("Where(StrictLessThan(Symbol('s0'), Integer(3)), Integer(1), Integer(2))", 2),
    ],
)
def test_a_symbolic_size_has_the_value_sympy_gives_it(text: str, value: int) -> None:
    assert ex.evaluate(symbolic.parse(text), SIZES) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Symbol('s0'",
        "Symbol('s0'))",
        "Mod(Integer(1))",
        "s0",
        "1",
        "Integer(1) Integer(2)",
        "Symbol(s0)",
        "Piecewise()",
        "Piecewise(Integer(1), true)",
        "Piecewise(ExprCondPair(Integer(1), Equality(Symbol('s0'), Integer(5))))",
    ],
)
def test_what_is_no_symbolic_size_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match=r"expression\."):
        symbolic.parse(text)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("L['x'].size()[0] == 6", True),
        ("((4*L['x'].size()[0]) % (3*L['batch']['ids'].size()[1])) == 0", True),
        ("L['args'][0].size()[0] > 12", False),
        ("torch.sym_max(1, L['x'].size()[1]) != 35", False),
        ("L['x'].stride()[0] == 35", True),
        ("L['x'].storage_offset() == 0", True),
        ("not (L['x'].size()[1] // 8 == 4) or L['x'].size()[0] < 7", True),
        ("2 <= L['x'].size()[0] < 6", False),
        ("math.floor(L['x'].size()[1] / 2) == 17", True),
    ],
)
def test_a_guard_holds_as_python_says(text: str, holds: bool) -> None:
    assert ex.evaluate(guards.parse(text, SHAPES.get), SIZES) is holds


@pytest.mark.parametrize(
    "text", ["L['y'].size()[0] == 1", "L['x'].size()[2] == 1", "s0 == 1", "L == 1", "x.size()[0] == 1", "lambda: 1"]
)
def test_a_guard_that_cannot_be_checked_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match=r"guard\."):
        guards.parse(text, SHAPES.get)


def test_a_guard_without_a_value_is_an_error_not_a_pass() -> None:
    with pytest.raises(ex.EvaluationError):
        ex.evaluate(guards.parse("1 % (L['x'].size()[0] - 6) == 0", SHAPES.get), SIZES)


def test_arithmetic_never_wraps_and_never_explodes() -> None:
    size = ex.symbol("s0")
    assert ex.evaluate(ex.call("mul", size, size, size), {"s0": 2**40}) == 2**120
    with pytest.raises(ex.EvaluationError):
        ex.evaluate(ex.call("pow", ex.call("pow", size, ex.const(8)), ex.const(8)), {"s0": 2**40})
    with pytest.raises(ex.EvaluationError, match="too large"):
        ex.evaluate(guards.parse("((3 ** -8) ** 8) ** 8 == 1", SHAPES.get), SIZES)


LEAVES = st.one_of(st.integers(-50, 50).map(ex.const), st.sampled_from(["s0", "s1"]).map(ex.symbol))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "max", "min"]), inner, inner).map(
        lambda t: ex.call(t[0], t[1], t[2])
    ),
    max_leaves=12,
)


@given(TREES, st.integers(1, 99), st.integers(1, 99))
def test_an_expression_means_the_same_after_a_trip_through_json(tree: ex.Expr, s0: int, s1: int) -> None:
    sizes = {"s0": s0, "s1": s1}
    again = ex.from_json(ex.to_json(tree))
    try:
        expected = ex.evaluate(tree, sizes)
    except ex.EvaluationError:
        with pytest.raises(ex.EvaluationError):
            ex.evaluate(again, sizes)
    else:
        assert ex.evaluate(again, sizes) == expected


@given(TREES, st.integers(1, 99), st.integers(1, 99))
def test_an_expression_reads_as_the_python_that_computes_it(tree: ex.Expr, s0: int, s1: int) -> None:
    sizes = {"s0": s0, "s1": s1}
    try:
        expected = ex.evaluate(tree, sizes)
    except ex.EvaluationError:
        return
    assert eval(ex.render(tree), {"max": max, "min": min}, sizes) == expected


@pytest.mark.parametrize("data", [["nope", 1, 2], ["mod", 1], {"a": 1}, None, [], ["add"]])
def test_json_that_is_no_expression_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"not an expression|takes"):
        ex.from_json(data)


def test_random_text_never_gets_past_the_parsers() -> None:
    rng = random.Random(5)
    pieces = [
        "Symbol('s0')",
        "Add(",
        "Integer(",
        ")",
        ",",
        "1",
        "'",
        "L['x']",
        ".size()[0]",
        "==",
        "eval",
        "(",
        "**",
        "lambda",
        " ",
    ]
    for _ in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 12)))
        for parse in (symbolic.parse, lambda t: guards.parse(t, SHAPES.get)):
            with contextlib.suppress(Refusal):
                assert isinstance(parse(text), ex.Expr)
