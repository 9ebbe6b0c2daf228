"""A checked document into the canonical program: what ``programs/<name>.json`` holds.

Values are named ``i0…`` (inputs), ``w0…`` (weights) and ``v0…`` (results); symbols ``s0…`` in the order in which the
inputs mention them, ``u0…`` for sizes that depend on data. The author's names stand in side tables.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes import guards
from headway_runtime.prepare.translate import graph, interface, prune, trees

FORMAT = 2
MAX_GUARDS = 4096
MAX_TERMS = 1 << 16
"""Of all guards together."""
MAX_RANGES = 1 << 14


@dataclass(slots=True)
class Draft:
    """The program on its way: ``document`` is complete but for the table of weights.

    ``operands``: what the file says of the tensors that operators of ours take (``dtype``, ``shape``), by the result's
    name and the argument's.
    """

    document: dict[str, Any]
    weights: list[interface.WeightUse]
    written: frozenset[str]
    operators: dict[str, int]
    operands: dict[str, dict[str, dict[str, Any]]]


def build(document: dict[str, Any]) -> Draft:
    """Translate a document that passed the schema. Raises Refusal."""
    module = document["graph_module"]
    body, signature = module["graph"], module["signature"]
    counter = graph.Counter()
    translation = graph.Translation(counter)
    symbols = interface.Symbols()
    paths = _at("graph_module.module_call_graph", interface.argument_paths, module)
    inputs, weights = _at("graph_module", interface.define_inputs, body, signature, translation, paths, symbols)
    _at("graph_module.graph", lambda: graph.translate_nodes(translation, body))
    outputs, mutated = _at(
        "graph_module", interface.collect_outputs, module, body, signature, translation, symbols, weights
    )
    used = [o["value"] for o in outputs]
    instructions = prune.prune(translation.instructions, used)
    shapes = {tuple(i["path"]): tuple(ex.from_json(e) for e in i["shape"]) for i in inputs}
    conditions = _guards(document, shapes, symbols)
    ranges = _ranges(document, symbols, conditions, inputs)
    for entry in inputs:
        entry["written"] = entry["value"] in counter.aliases.written
        del entry["path"]
    result = {
        "format": FORMAT,
        "torch": document["torch_version"],
        "symbols": ranges,
        "inputs": inputs,
        "nodes": instructions,
        "outputs": outputs,
        "guards": [ex.to_json(c) for c in conditions],
    }
    operands = {
        value: {name: _operand(meta, symbols) for name, meta in described.items()}
        for value, described in counter.described.items()
    }
    return Draft(result, weights, frozenset(counter.aliases.written) | mutated, counter.used, operands)


def _operand(meta: dict[str, Any], symbols: interface.Symbols) -> dict[str, Any]:
    return {"dtype": tensors.dtype(meta["dtype"]), "shape": interface.shape(meta, symbols)}


def _at(path: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Refusal as r:
        for step in reversed(path.split(".")):
            r.inside(step)
        raise


def _guards(
    document: dict[str, Any], shapes: dict[trees.Path, tuple[ex.Expr, ...]], symbols: interface.Symbols
) -> list[ex.Expr]:
    if len(document.get("guards_code", [])) > MAX_GUARDS:
        raise Refusal("guard.size", f"{len(document['guards_code'])} guards").inside("guards_code")
    arguments = {path[0] for path in shapes}

    def shape_of(path: trees.Path) -> tuple[ex.Expr, ...] | None:
        if path[0] not in arguments and len(path) > 1:  # collected by *xs or **more: the graph has xs_0, and their keys
            first = f"{path[0]}_{path[1]}" if isinstance(path[1], int) else path[1]
            path = (first, *path[2:])
        return shapes.get(path)

    conditions: dict[ex.Expr, None] = {}
    terms = 0
    for i, text in enumerate(document.get("guards_code", [])):
        try:
            condition = guards.parse(text, shape_of)
        except Refusal as r:
            raise r.inside(i).inside("guards_code") from None
        terms += sum(1 for _ in itertools.islice(ex.walk(condition), MAX_TERMS))
        if terms > MAX_TERMS:  # each is evaluated for every new shape, by the process that serves
            raise Refusal("guard.size", f"more than {MAX_TERMS} terms").inside("guards_code")
        if not (condition.operator == "eq" and condition.args[0] == condition.args[1]):
            conditions[condition] = None
    return list(conditions)


def _ranges(
    document: dict[str, Any], symbols: interface.Symbols, conditions: list[ex.Expr], inputs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Range of each symbol. A range of a derived size (``2*s77``) becomes two more guards."""
    roots = {s for i in inputs for size in i["shape"] for s in ex.from_json(size).symbols()}
    ranges: dict[str, Any] = {}
    if len(document["range_constraints"]) > MAX_RANGES:
        raise Refusal("expression.size", f"{len(document['range_constraints'])} ranges").inside("range_constraints")
    for key, limits in sorted(document["range_constraints"].items()):
        low, high = limits["min_val"], limits["max_val"]
        try:
            expr = guards.parse_range(key)
        except Refusal as r:
            raise r.inside(key).inside("range_constraints") from None
        if not expr.symbols() <= symbols.names.keys():
            continue  # of a size that neither inputs nor outputs mention
        expr = symbols.rename(expr)
        if expr.operator == "symbol":
            if expr.value in roots and ((low or 0) < 0 or (high is not None and high < (low or 0))):
                raise Refusal("expression.range", f"{low} to {high}").inside(key).inside("range_constraints")
            ranges[str(expr.value)] = {"min": low or 0, "max": high}
            continue
        if not expr.symbols() <= roots:
            continue  # depends on data: the program asserts it itself
        conditions += [] if low is None else [ex.call("ge", expr, ex.const(low))]
        conditions += [] if high is None else [ex.call("le", expr, ex.const(high))]
    if missing := roots - ranges.keys():
        raise Refusal("expression.symbol", f"no range for {sorted(missing)}").inside("range_constraints")
    for expr in conditions:
        if not expr.symbols() <= roots:
            raise Refusal("expression.symbol", str(expr)).inside("guards_code")
    return ranges
