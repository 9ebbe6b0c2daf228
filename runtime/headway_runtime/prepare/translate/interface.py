"""The interface of a program: inputs, weights and outputs, as signature, graph and tree specs agree on them.

A signature that says one thing and a graph that says another would let a value pass for something it is not; so each
entry is held against the others, and only then given its canonical name.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes import symbolic
from headway_runtime.prepare.translate import graph, names, trees


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight as the graph knows it. ``meta`` is what the graph says of its shape and element type."""

    value: str
    name: str
    kind: str  # parameter, buffer, tensor_constant
    persistent: bool
    meta: dict[str, Any]


@dataclass(slots=True)
class Symbols:
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


def argument_paths(module: dict[str, Any]) -> list[trees.Path]:
    """Tree path of each user input, in flat order. Every tree spec of the file is checked, used or not."""
    calls = module["module_call_graph"]
    if not calls or calls[0]["fqn"] != "" or not calls[0].get("signature"):
        raise Refusal("graph.signature", "no call signature of the whole module")
    fields = trees.named_tuples(module)
    for call in calls[1:]:
        names.check_printable(call["fqn"])
        if call.get("signature"):
            trees.leaves(call["signature"]["in_spec"], fields)
            trees.leaves(call["signature"]["out_spec"], fields)
    parameters = calls[0]["signature"].get("forward_arg_names")
    for name in parameters or ():
        names.check_value(name)
    return trees.argument_leaves(calls[0]["signature"]["in_spec"], parameters, fields)


def define_inputs(
    body: dict[str, Any],
    signature: dict[str, Any],
    translation: graph.Translation,
    paths: list[trees.Path],
    symbols: Symbols,
) -> tuple[list[dict[str, Any]], list[WeightUse]]:
    """User inputs and weights, in the order of the graph's inputs; each is entered into the translation's scope."""
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
                names.check_value(content["name"])
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
    symbols: Symbols,
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
        "dtype": tensors.served_dtype(meta["dtype"]),
        "shape": shape(meta, symbols),
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


def shape(meta: dict[str, Any], symbols: Symbols) -> list[Any]:
    """Canonical sizes of a tensor that the file describes."""
    sizes = (
        ex.const(s["as_int"]) if "as_int" in s else symbols.rename(symbolic.parse(s["as_expr"]["expr_str"]))
        for s in meta["sizes"]
    )
    return [ex.to_json(e) for e in sizes]


def collect_outputs(
    module: dict[str, Any],
    body: dict[str, Any],
    signature: dict[str, Any],
    translation: graph.Translation,
    symbols: Symbols,
    weights: list[WeightUse],
) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Results that are values (constants of the result tree are dropped), and the buffers that functional programs
    update.
    """
    specs = signature["output_specs"]
    if len(specs) != len(body["outputs"]):
        raise Refusal("graph.signature", f"{len(specs)} output specs for {len(body['outputs'])} graph outputs")
    paths = trees.leaves(module["module_call_graph"][0]["signature"]["out_spec"], trees.named_tuples(module))
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
            continue
        if kind == "parameter_mutation":
            raise Refusal("write.parameter", content["parameter_name"])
        if argument != {"as_tensor": content["arg"]}:
            raise Refusal("graph.signature", "the output spec of a write, and the graph's output differ")
        translation.use(content["arg"]["name"], "tensor")
        if kind == "user_input_mutation" and not translation.is_input(content["user_input_name"]):
            raise Refusal("graph.signature", f"{content['user_input_name']} is written to, and is no input")
        if kind == "buffer_mutation":
            found = {w.value for w in weights if w.name == content["buffer_name"]}
            if not found:
                raise Refusal("graph.signature", f"{content['buffer_name']} is updated, and is no buffer")
            mutated |= found
    if next(user, None) is not None:
        raise Refusal("graph.signature", "fewer outputs than the tree spec has leaves")
    return outputs, frozenset(mutated)


def _output(
    argument: dict[str, Any],
    path: trees.Path,
    number: int,
    body: dict[str, Any],
    translation: graph.Translation,
    symbols: Symbols,
) -> list[dict[str, Any]]:
    (member, value), *_ = argument.items()
    keys = any(isinstance(step, str) for step in path)
    name = names.check_printable(trees.join(path)) if keys else f"output_{number}"
    if member == "as_tensor":
        meta = _meta(body, value["name"])
        canonical = translation.use(value["name"], "tensor")
        dtype = tensors.served_dtype(meta["dtype"])
        return [{"value": canonical, "name": name, "dtype": dtype, "shape": shape(meta, symbols)}]
    scalar = {
        "as_sym_int": ("int", "int64"),
        "as_sym_float": ("float", "float64"),
        "as_sym_bool": ("bool", "bool"),
    }.get(member)
    if scalar is not None and "as_name" in value:
        canonical = translation.use(value["as_name"], scalar[0])
        entry = {"value": canonical, "name": name, "dtype": scalar[1], "shape": []}
        described = body["sym_int_values"].get(value["as_name"]) if member == "as_sym_int" else None
        if described is not None and "as_expr" in described:
            entry["size"] = ex.to_json(symbols.rename(symbolic.parse(described["as_expr"]["expr_str"])))
        return [entry]
    if member in {"as_none", "as_int", "as_float", "as_bool", "as_string"}:
        return []  # the same for every request
    raise Refusal("graph.signature", f"{member} as an output")
