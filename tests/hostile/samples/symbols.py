"""Sizes, ranges and guards: expressions that torch evaluates."""

# a table: one sample a line

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import Entries
from tests.hostile.samples.registry import Build, add, change, graph


def _size(text: Callable[[Path], str]) -> Build:
    def build(out: Path, entries: Entries, marker: Path) -> Path:
        def alter(d: Any) -> None:
            for value in graph(d)["tensor_values"].values():
                for size in value["sizes"]:
                    if "as_expr" in size:
                        size["as_expr"]["expr_str"] = text(marker)

        return ar.write(out, ar.altered(entries, alter))

    return build


add("expression.syntax", "a_size_that_is_python", _size(lambda m: f"({ar.touch(m)}, Symbol('s77'))[1]"))
add("expression.function", "a_size_that_calls_python", _size(lambda m: "eval(Integer(1))"))
add("expression.function", "a_size_that_is_a_factorial", _size(lambda m: "factorial(Integer(30000000))"))
add(
    "expression.number",
    "a_size_that_is_a_tower_of_powers",
    _size(lambda m: "Pow(Integer(9), Pow(Integer(9), Integer(9)))"),
)
add("expression.symbol", "a_size_with_a_dunder_symbol", _size(lambda m: "Symbol('__class__')"))
add("expression.size", "a_size_nested_too_deeply", _size(lambda m: "Add(" * 60 + "Integer(1)" + ")" * 60))
add("expression.size", "a_size_of_a_megabyte", _size(lambda m: "Add(" + ", ".join(["Integer(1)"] * 2000) + ")"))


def _guard(text: Callable[[Path], str]) -> Build:
    return lambda out, entries, marker: ar.write(
        out, ar.altered(entries, lambda d: d.update(guards_code=[text(marker)]))
    )


add(
    "guard.syntax",
    "a_guard_that_ends_its_function",
    _guard(lambda m: f"True #\n  , 'x')\n{ar.touch(m)}\ndef _(*args):\n  torch._assert(True"),
)
add("guard.form", "a_guard_that_calls_open", _guard(lambda m: f"{ar.touch(m)} == 1".replace("/", "").replace("-", "")))
add("guard.form", "a_guard_that_imports", _guard(lambda m: "__import__('os') == 1"))
add("guard.form", "a_guard_on_an_attribute", _guard(lambda m: "L['x'].grad_fn == 1"))
add("guard.input", "a_guard_on_no_input", _guard(lambda m: "L['weights'].size()[0] == 4"))
add("guard.form", "a_guard_with_a_giant_power", _guard(lambda m: "L['x'].size()[0] ** 999999999 == 4"))
add("guard.syntax", "a_guard_nested_too_deeply", _guard(lambda m: "(" * 400 + "1" + ")" * 400 + " == 1"))


# An expression can stand in many places; every one is read by the same grammar.
CALL = "eval(Integer(1))"


def _meta(key: str) -> Callable[[Any], None]:
    def alter(d: Any) -> None:
        meta = graph(d)["tensor_values"]["x"]
        text = {"as_expr": {"expr_str": CALL}}
        meta[key] = [text] * len(meta[key]) if isinstance(meta[key], list) else text

    return alter


change("expression.function", "a_stride_that_calls_python", _meta("strides"))
change("expression.function", "an_offset_that_calls_python", _meta("storage_offset"))
for _kind in ("int", "float", "bool"):
    change(
        "expression.function",
        f"a_symbolic_{_kind}_that_calls_python",
        lambda d, k=_kind: graph(d).setdefault(f"sym_{k}_values", {}).update(y={"as_expr": {"expr_str": CALL}}),
    )
change(
    "schema.unknown",
    "a_hint_that_is_text",
    lambda d: graph(d)["sym_int_values"].update(
        y={"as_expr": {"expr_str": "Symbol('s77')", "hint": {"as_string": "x"}}}
    ),
)
for _number, _key in enumerate(
    (
        "__import__('os').system('x')",
        "s77\nimport os",
        "s77 if s77 else s77.x",
        "[s77 for s77 in x]",
        "s77[0]",
        "lambda: 0",
    )
):
    change(
        "guard.form" if _number in {0, 2, 3, 4} else "guard.syntax",
        f"a_range_of_something_that_is_code_{_number}",
        lambda d, k=_key: d["range_constraints"].update({k: {"min_val": 0, "max_val": 9}}),
    )


def _ranges(low: int, high: int) -> Callable[[Any], None]:
    return lambda d: d["range_constraints"].update(
        {k: {"min_val": low, "max_val": high} for k in d["range_constraints"]}
    )


change("expression.range", "a_size_of_an_empty_range", _ranges(9, 3))
change("expression.range", "a_negative_size", _ranges(-4, 9))
change("expression.range", "a_size_between_huge_and_one", _ranges(1 << 62, 1))

_HUGE = "Integer(2305843009213693952)"
for _name, (_rule, _expression) in {
    "whose_product_is_huge": ("expression.number", "Mul(" + ", ".join([_HUGE] * 40) + ")"),
    "of_an_integer_of_63_bits": ("expression.number", "Integer(9223372036854775807)"),
    "of_an_integer_of_a_thousand_digits": ("expression.number", "Integer(" + "9" * 1000 + ")"),
    "divided_by_nothing": ("expression.number", "Rational(1, 0)"),
    "of_an_infinite_number": ("expression.number", "Float('1e999', precision=53)"),
    "of_a_number_that_is_code": ("expression.syntax", "Float('__import__()', precision=53)"),
    "that_shifts": ("expression.function", "LShift(Integer(1), Integer(1000000000))"),
    "of_a_symbol_that_is_code": ("expression.syntax", "Symbol('s77\\', x=open(1), y=\\'')"),
    "of_a_symbol_with_another_assumption": ("expression.symbol", "Symbol('s77', evil=True)"),
    "of_a_symbol_with_a_computed_assumption": ("expression.syntax", "Symbol('s77', positive=open(Integer(1)))"),
    "that_is_an_attribute": ("expression.syntax", "Symbol('s77').__class__"),
    "that_is_a_string": ("expression.syntax", "'x'"),
    "that_is_empty": ("expression.syntax", ""),
    "with_text_after_its_end": ("expression.syntax", "Integer(1) Integer(2)"),
    "of_unicode_digits": ("expression.syntax", "Integer(\u0661)"),
    "with_too_few_arguments": ("expression.syntax", "Mod(Integer(1))"),
    "of_three_hundred_terms": ("expression.size", "Max(" + ", ".join(["Integer(1)"] * 300) + ")"),
}.items():
    add(_rule, f"a_size_{_name}", _size(lambda m, text=_expression: text))

for _name, (_rule, _condition) in {
    "of_the_bare_dictionary": ("guard.input", "L.size()[0] == 1"),
    "of_an_input_of_an_input": ("guard.input", "L['x']['y'].size()[0] == 1"),
    "with_a_lambda": ("guard.form", "(lambda)() == 1".replace("lambda", "max or x")),
    "with_a_comprehension": ("guard.form", "[x for x in L['x'].size()] == 1"),
    "with_a_text_that_grows": ("guard.form", "'a' * 999999999 == 1"),
    "with_a_keyword": ("guard.form", "max(1, key=2) == 1"),
    "with_unpacking": ("guard.form", "max(*L['x'].size()) == 1"),
    "with_identity": ("guard.form", "L['x'].size()[0] is None"),
    "of_the_last_axis": ("guard.form", "L['x'].size()[-1] == 4"),
    "of_an_axis_that_is_a_condition": ("guard.form", "L['x'].size()[True] == 4"),
    "of_an_axis_that_is_not_there": ("guard.form", "L['x'].size()[99] == 4"),
    "of_another_method": ("guard.form", "L['x'].tolist()[0] == 4"),
    "of_a_dunder": ("guard.form", "L['x'].__class__.__mro__ == 4"),
    "with_a_huge_product": ("guard.form", "*".join(["4611686018427387903"] * 40) + " == 1"),
    "with_an_integer_of_64_bits": ("guard.form", "L['x'].size()[0] == 18446744073709551615"),
    "with_an_integer_of_five_thousand_digits": ("guard.syntax", "1 == " + "9" * 5000),
    "with_an_infinite_number": ("guard.form", "L['x'].size()[0] < 1e999"),
    "with_two_thousand_nots": ("guard.syntax", "not " * 2000 + "1 == 1"),
    "with_a_sum_of_two_thousand": ("guard.syntax", "+".join(["1"] * 2000) + " == 1"),
    "with_a_deep_call": ("guard.form", "(" + "+".join(["1"] * 500) + ")(1) == 1"),
    "with_a_deep_subscript": ("guard.syntax", "L" + "[0]" * 600 + ".size()[0] == 1"),
    "with_a_deep_attribute": ("guard.form", "L" + ".x" * 600 + " == 1"),
    "of_nine_thousand_characters": ("guard.syntax", "1 == 1 or " * 900 + "1 == 1"),
    "that_is_two_statements": ("guard.syntax", "1 == 1; import os"),
    "that_assigns": ("guard.syntax", "(x := 1) == 1"),
    "in_unicode": ("guard.syntax", "L['x'].\uff53ize()[0] == 1"),
    "that_is_empty": ("guard.syntax", ""),
}.items():
    add(_rule, f"a_guard_{_name}", _guard(lambda m, text=_condition: text))
change("guard.size", "five_thousand_guards", lambda d: d.update(guards_code=["L['x'].size()[0] != 3"] * 5000))
change(
    "guard.size",
    "guards_of_a_million_terms",
    lambda d: d.update(guards_code=["+".join(["L['x'].size()[0]"] * 100) + f" != {i}" for i in range(1000)]),
)
change(
    "expression.size",
    "a_hundred_thousand_ranges",
    lambda d: d["range_constraints"].update({f"s{i}": {"min_val": 0, "max_val": 9} for i in range(100, 100_100)}),
)
