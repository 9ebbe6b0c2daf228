"""A checked document into the canonical program: what ``program.json`` holds.

Values are named ``i0…`` (inputs), ``w0…`` (weights) and ``v0…`` (results); symbols ``s0…`` in the order in which the
inputs mention them, ``u0…`` for sizes that depend on data. The author's names stand in side tables.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare import expression as ex
from headway_runtime.prepare import graph, guards, names, prune, symbolic, tensors, trees
from headway_runtime.prepare.errors import Refusal

FORMAT = 1
MAX_GUARDS = 4096


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight as the graph knows it: canonical value, the author's name, how it may be treated, what the graph says
    of it.
    """

    value: str
    name: str
    kind: str  # parameter, buffer, tensor_constant
    persistent: bool
    meta: dict[str, Any]


@dataclass(slots=True)
class Draft:
    """The program on its way: ``document`` is complete but for the table of weights."""

    document: dict[str, Any]
    weights: list[WeightUse]
    written: frozenset[str]
    operators: dict[str, int]


@dataclass(slots=True)
class _Symbols:
    """Canonical names for the file's symbols, in the order in which they are met."""

    names: dict[str, str] = field(default_factory=dict)

    def rename(self, expr: ex.Expr) -> ex.Expr:
        if expr.operator == "symbol":
            return ex.symbol(self._canonical(str(expr.value)))
        return ex.Expr(expr.operator, tuple(self.rename(a) for a in expr.args), expr.value)

    def _canonical(self, name: str) -> str:
        if name not in self.names:
            data_dependent = re.match(r"z?u", name) is not None
            count = sum(n[0] == ("u" if data_dependent else "s") for n in self.names.values())
            self.names[name] = f"{'u' if data_dependent else 's'}{count}"
        return self.names[name]


def build(document: dict[str, Any]) -> Draft:
    """Translate a document that passed the schema. Raises Refusal."""
    module = document["graph_module"]
    body, signature = module["graph"], module["signature"]
    counter = graph.Counter()
    translation = graph.Translation(counter)
    symbols = _Symbols()
    paths = _argument_paths(module)
    inputs, weights = _at("graph_module", _define_inputs, body, signature, translation, paths, symbols)
    _at("graph_module.graph", lambda: graph.translate_nodes(translation, body))
    outputs, mutated = _at("graph_module", _collect_outputs, module, body, signature, translation, symbols, weights)
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
    return Draft(result, weights, frozenset(counter.aliases.written) | mutated, counter.used)


def _at(path: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Refusal as r:
        for step in reversed(path.split(".")):
            r.inside(step)
        raise


def _argument_paths(module: dict[str, Any]) -> list[trees.Path]:
    """Tree path of each user input, in flat order. Every tree spec of the file is checked, used or not."""
    calls = module["module_call_graph"]
    if not calls or calls[0]["fqn"] != "" or not calls[0].get("signature"):
        raise Refusal("graph.signature", "no call signature of the whole module")
    for call in calls[1:]:
        if call.get("signature"):
            trees.leaves(call["signature"]["in_spec"])
            trees.leaves(call["signature"]["out_spec"])
    parameters = calls[0]["signature"].get("forward_arg_names")
    for name in parameters or ():
        names.check_value(name)
    return trees.argument_leaves(calls[0]["signature"]["in_spec"], parameters)


def _define_inputs(
    body: dict[str, Any],
    signature: dict[str, Any],
    translation: graph.Translation,
    paths: list[trees.Path],
    symbols: _Symbols,
) -> tuple[list[dict[str, Any]], list[WeightUse]]:
    specs = signature["input_specs"]
    if len(specs) != len(body["inputs"]):
        raise Refusal("graph.signature", f"{len(specs)} input specs for {len(body['inputs'])} graph inputs")
    user = iter(paths)
    inputs: list[dict[str, Any]] = []
    weights: list[WeightUse] = []
    for position, (spec, argument) in enumerate(zip(specs, body["inputs"], strict=True)):
        (kind, content), *_ = spec.items()
        try:
            if kind == "constant_input":
                next(user, None)
                if "as_tensor" in argument:
                    raise Refusal("graph.signature", "a constant that is a tensor")
            elif kind == "user_input":
                path = next(user, None)
                if path is None:
                    raise Refusal("graph.signature", "more inputs than the tree spec has leaves")
                inputs.append(_user_input(content["arg"], argument, path, len(inputs), body, translation, symbols))
            else:
                weights.append(_weight(kind, content, argument, len(weights), body, translation))
        except Refusal as r:
            raise r.inside(position).inside("input_specs").inside("signature") from None
    if next(user, None) is not None:
        raise Refusal("graph.signature", "fewer inputs than the tree spec has leaves")
    return inputs, weights


def _user_input(
    spec: dict[str, Any],
    argument: dict[str, Any],
    path: trees.Path,
    number: int,
    body: dict[str, Any],
    translation: graph.Translation,
    symbols: _Symbols,
) -> dict[str, Any]:
    if "as_tensor" not in spec:
        raise Refusal("input.kind", trees.join(path))
    if spec != argument:
        raise Refusal("graph.signature", "input spec and graph input differ")
    value = translation.define(spec["as_tensor"]["name"], "tensor", f"i{number}")
    translation.counter.aliases.fresh(value)
    meta = _meta(body, spec["as_tensor"]["name"])
    return {
        "value": value,
        "name": names.check_printable(trees.join(path)),
        "path": list(path),
        "dtype": tensors.dtype(meta["dtype"]),
        "shape": _shape(meta, symbols),
    }


def _weight(
    kind: str,
    content: dict[str, Any],
    argument: dict[str, Any],
    number: int,
    body: dict[str, Any],
    translation: graph.Translation,
) -> WeightUse:
    if argument != {"as_tensor": content["arg"]}:
        raise Refusal("graph.signature", "weight spec and graph input differ")
    value = translation.define(content["arg"]["name"], "tensor", f"w{number}")
    translation.counter.aliases.fresh(value)
    name = content.get("parameter_name") or content.get("buffer_name") or content.get("tensor_constant_name") or ""
    return WeightUse(
        value,
        names.check_printable(name),
        kind,
        content.get("persistent", kind == "parameter"),
        _meta(body, content["arg"]["name"]),
    )


def _meta(body: dict[str, Any], name: str) -> dict[str, Any]:
    meta: dict[str, Any] | None = body["tensor_values"].get(name)
    if meta is None:
        raise Refusal("graph.signature", f"{name} has no description")
    tensors.check_meta(meta)
    return meta


def _shape(meta: dict[str, Any], symbols: _Symbols) -> list[Any]:
    sizes = (
        ex.const(s["as_int"]) if "as_int" in s else symbols.rename(symbolic.parse(s["as_expr"]["expr_str"]))
        for s in meta["sizes"]
    )
    return [ex.to_json(e) for e in sizes]


def _collect_outputs(
    module: dict[str, Any],
    body: dict[str, Any],
    signature: dict[str, Any],
    translation: graph.Translation,
    symbols: _Symbols,
    weights: list[WeightUse],
) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Results that are values (constants of the result tree are dropped), and the buffers that functional programs
    update.
    """
    specs = signature["output_specs"]
    if len(specs) != len(body["outputs"]):
        raise Refusal("graph.signature", f"{len(specs)} output specs for {len(body['outputs'])} graph outputs")
    paths = trees.leaves(module["module_call_graph"][0]["signature"]["out_spec"])
    user = iter(paths)
    outputs: list[dict[str, Any]] = []
    mutated: set[str] = set()
    for spec, argument in zip(specs, body["outputs"], strict=True):
        (kind, content), *_ = spec.items()
        if kind == "user_output":
            path = next(user, None)
            if path is None or content["arg"] != argument:
                raise Refusal("graph.signature", "output spec, graph output and tree spec differ")
            outputs += _output(argument, path, len(outputs), body, translation, symbols)
        elif kind == "buffer_mutation":
            mutated |= {w.value for w in weights if w.name == content["buffer_name"]}
    if next(user, None) is not None:
        raise Refusal("graph.signature", "fewer outputs than the tree spec has leaves")
    return outputs, frozenset(mutated)


def _output(
    argument: dict[str, Any],
    path: trees.Path,
    number: int,
    body: dict[str, Any],
    translation: graph.Translation,
    symbols: _Symbols,
) -> list[dict[str, Any]]:
    (member, value), *_ = argument.items()
    keys = any(isinstance(step, str) for step in path)
    name = names.check_printable(trees.join(path)) if keys else f"output_{number}"
    if member == "as_tensor":
        meta = _meta(body, value["name"])
        canonical = translation.use(value["name"], "tensor")
        return [
            {"value": canonical, "name": name, "dtype": tensors.dtype(meta["dtype"]), "shape": _shape(meta, symbols)}
        ]
    scalar = {
        "as_sym_int": ("int", "int64"),
        "as_sym_float": ("float", "float64"),
        "as_sym_bool": ("bool", "bool"),
    }.get(member)
    if scalar is not None and "as_name" in value:
        canonical = translation.use(value["as_name"], scalar[0])
        return [{"value": canonical, "name": name, "dtype": scalar[1], "shape": []}]
    if member in {"as_none", "as_int", "as_float", "as_bool", "as_string"}:
        return []  # the same for every request
    raise Refusal("graph.signature", f"{member} as an output")


def _guards(
    document: dict[str, Any], shapes: dict[trees.Path, tuple[ex.Expr, ...]], symbols: _Symbols
) -> list[ex.Expr]:
    if len(document.get("guards_code", [])) > MAX_GUARDS:
        raise Refusal("guard.syntax", "too many guards")
    conditions: list[ex.Expr] = []
    for i, text in enumerate(document.get("guards_code", [])):
        try:
            condition = guards.parse(text, shapes.get)
        except Refusal as r:
            raise r.inside(i).inside("guards_code") from None
        trivially = condition.operator == "eq" and condition.args[0] == condition.args[1]
        if not trivially and condition not in conditions:
            conditions.append(condition)
    return conditions


def _ranges(
    document: dict[str, Any], symbols: _Symbols, conditions: list[ex.Expr], inputs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Range of each symbol. A range of a derived size (``2*s77``) becomes two more guards."""
    roots = {s for i in inputs for size in i["shape"] for s in ex.from_json(size).symbols()}
    ranges: dict[str, Any] = {}
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
            ranges[str(expr.value)] = {"min": low or 0, "max": high}
            continue
        if not expr.symbols() <= roots:
            continue  # depends on data: the program asserts it itself
        conditions += [] if low is None else [ex.call("ge", expr, ex.const(low))]
        conditions += [] if high is None else [ex.call("le", expr, ex.const(high))]
    if missing := roots - ranges.keys():
        raise Refusal("expression.symbol", f"no range for {sorted(missing)}")
    for expr in conditions:
        if not expr.symbols() <= roots:
            raise Refusal("expression.symbol", str(expr))
    return ranges
