"""Operators that carry graphs. ``cond`` keeps its two branches, ``scan`` and ``map`` their body, and autocast what
runs under it; wrappers that change nothing in inference are inlined.

An instruction with graphs has them under ``branches``: ``{"inputs": names, "nodes": instructions, "outputs": values}``.
``while_loop`` is refused with a rule of its own, because it may never end, and everything else as an operator off the
list.
"""

from typing import TYPE_CHECKING, Any

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import arguments

if TYPE_CHECKING:
    from headway_runtime.prepare.translate.graph import Translation

_KINDS = {"as_tensor": "tensor", "as_sym_int": "int", "as_sym_float": "float", "as_sym_bool": "bool"}
_OPERANDS = {"as_tensors", "as_sym_ints", "as_ints"}


def translate(outer: "Translation", name: str, node: dict[str, Any]) -> None:
    """Translate a call of ``torch.ops.higher_order.<name>``. Raises Refusal ``operator.unlisted`` for what is not
    supported.
    """
    inputs = [i["arg"] for i in node["inputs"]]
    match name:
        case "cond":
            _cond(outer, inputs, node)
        case "scan":
            _scan(outer, inputs, node)
        case "map_impl":
            _map(outer, inputs, node)
        case "wrap_with_set_grad_enabled":
            _inline(outer, inputs, 1, node)
        case "wrap_with_autocast":
            _autocast(outer, inputs, node)
        case "while_loop":
            raise Refusal("operator.loop")
        case _:
            raise Refusal("operator.unlisted", f"higher_order.{name}")


def _cond(outer: "Translation", inputs: list[dict[str, Any]], node: dict[str, Any]) -> None:
    if len(inputs) != 4 or "as_graph" not in inputs[1] or "as_graph" not in inputs[2]:
        raise Refusal("operator.arguments", "cond takes a predicate, two graphs and operands")
    predicate = _operand(outer, inputs[0])
    operands = _operands(outer, inputs[3])
    branches = [_branch(outer, graph["as_graph"]["graph"], operands) for graph in inputs[1:3]]
    out = _results(outer, node, branches)
    for value_name in out:
        outer.counter.aliases.shared(value_name, _values(operands))
    outer.emit("cond", [predicate, *operands], {}, out, branches=branches)


def _scan(outer: "Translation", inputs: list[dict[str, Any]], node: dict[str, Any]) -> None:
    """The carried values may hand back an operand; the other results are stacked, and so of their own."""
    if len(inputs) != 4 or "as_graph" not in inputs[0] or not {"as_tensors"} >= {*inputs[1], *inputs[2]}:
        raise Refusal("operator.arguments", "scan takes a graph, initial tensors, tensors to scan and operands")
    carried, xs, more = (_operands(outer, argument) for argument in inputs[1:])
    body = _body(outer, inputs[0], xs, [*carried, *xs, *more])
    out = _results(outer, node, [body])
    if len(out) < len(carried):
        raise Refusal("graph.value", "a scan that carries more than it returns")
    for position, value_name in enumerate(out):
        if position < len(carried):
            outer.counter.aliases.shared(value_name, _values([*carried, *xs, *more]))
        else:
            outer.counter.aliases.fresh(value_name)
    outer.emit("scan", [carried, xs, more], {}, out, branches=[body])


def _map(outer: "Translation", inputs: list[dict[str, Any]], node: dict[str, Any]) -> None:
    if len(inputs) != 3 or "as_graph" not in inputs[0] or "as_tensors" not in inputs[1]:
        raise Refusal("operator.arguments", "map takes a graph, tensors to map over and operands")
    xs, more = (_operands(outer, argument) for argument in inputs[1:])
    body = _body(outer, inputs[0], xs, [*xs, *more])
    out = _results(outer, node, [body])
    for value_name in out:
        outer.counter.aliases.fresh(value_name)
    outer.emit("map", [xs, more], {}, out, branches=[body])


def _autocast(outer: "Translation", inputs: list[dict[str, Any]], node: dict[str, Any]) -> None:
    """A graph that runs with autocast on or off. Off where it is off already changes nothing."""
    types = {"as_string", "as_scalar_type", "as_none", "as_bool", "as_graph"}
    if len(inputs) < 5 or not types >= {member for argument in inputs[:5] for member in argument}:
        raise Refusal("operator.arguments", "autocast takes a device type, a type, two switches, a graph and operands")
    enabled = inputs[2].get("as_bool")
    if enabled is False and not outer.autocast:
        _inline(outer, inputs, 4, node)
        return
    device = {"type": inputs[0].get("as_string")}
    if type(enabled) is not bool or device["type"] not in tensors.DEVICES or "as_graph" not in inputs[4]:
        raise Refusal("operator.value", "autocast")
    dtype = None if "as_none" in inputs[1] else arguments.translate(inputs[1], "ScalarType", outer)
    operands = [_operand(outer, argument) for argument in inputs[5:]]
    body = _branch(outer, inputs[4]["as_graph"]["graph"], operands, autocast=enabled)
    out = _results(outer, node, [body])
    for value_name in out:
        outer.counter.aliases.shared(value_name, _values(operands))
    options = {"device": {"device": tensors.device(device)}, "dtype": dtype, "enabled": enabled}
    outer.emit("autocast", [*operands], options, out, branches=[body])


def _body(outer: "Translation", graph: dict[str, Any], xs: list[Any], operands: list[Any]) -> dict[str, Any]:
    if not xs:
        raise Refusal("operator.arguments", "a loop over nothing")
    if any("as_tensor" not in output for output in graph["as_graph"]["graph"]["outputs"]):
        raise Refusal("graph.value", "a loop whose results are no tensors")
    return _branch(outer, graph["as_graph"]["graph"], operands)


def _operands(outer: "Translation", argument: dict[str, Any]) -> list[Any]:
    (member, value), *_ = argument.items()
    if member not in _OPERANDS:
        raise Refusal("operator.arguments", f"operands of a graph as {member}")
    if member == "as_tensors":
        return [{"v": outer.operand(v["name"])} for v in value]
    operands: list[Any] = arguments.untyped(member, value, outer)
    return operands


def _values(operands: list[Any]) -> list[str]:
    return [o["v"] for o in operands if isinstance(o, dict)]


def _results(outer: "Translation", node: dict[str, Any], branches: list[dict[str, Any]]) -> list[str]:
    """Names of the results: as many as each graph has, and of the same kinds."""
    out = outer.results(node["outputs"])
    if any(not isinstance(o, str) for o in out) or any(len(b["outputs"]) != len(out) for b in branches):
        raise Refusal("graph.value", "an instruction and the graphs it carries differ in the number of results")
    kinds = outer.counter.kinds
    for branch in branches:
        if [kinds[o["v"]] for o in branch["outputs"]] != [kinds[o] for o in out]:
            raise Refusal("graph.value", "an instruction and the graphs it carries differ in the kinds of results")
    return out


def _branch(
    outer: "Translation", graph: dict[str, Any], operands: list[Any], *, autocast: bool | None = None
) -> dict[str, Any]:
    """A graph with a scope of its own: only its operands come in."""
    from headway_runtime.prepare.translate.graph import MAX_NESTING, Translation, translate_nodes

    if outer.depth >= MAX_NESTING or len(graph["inputs"]) != len(operands):
        raise Refusal("graph.value", "branches nested too deeply, or with other inputs than operands")
    inner = Translation(outer.counter, outer.depth + 1, autocast=outer.autocast if autocast is None else autocast)
    own = [_define_input(inner, argument, None) for argument in graph["inputs"]]
    for name, operand in zip(own, operands, strict=True):
        if isinstance(operand, dict) and outer.counter.kinds[operand["v"]] != outer.counter.kinds[name]:
            raise Refusal("graph.value", "a graph with inputs of other kinds than its operands")
    for name in own:
        outer.counter.aliases.fresh(name)
    translate_nodes(inner, graph)
    if not outer.counter.aliases.written.isdisjoint(own):
        raise Refusal("write.branch")
    return {"inputs": own, "nodes": inner.instructions, "outputs": [_operand(inner, o) for o in graph["outputs"]]}


def _inline(outer: "Translation", inputs: list[dict[str, Any]], at: int, node: dict[str, Any]) -> None:
    """The graph at position ``at``, with the arguments behind it, becomes part of the outer graph."""
    from headway_runtime.prepare.translate.graph import MAX_NESTING, Translation, translate_nodes

    if len(inputs) <= at or "as_graph" not in inputs[at] or outer.depth >= MAX_NESTING:
        raise Refusal("operator.arguments", "a wrapper without a graph")
    graph = inputs[at]["as_graph"]["graph"]
    operands = [_operand(outer, argument) for argument in inputs[at + 1 :]]
    if len(operands) != len(graph["inputs"]) or len(node["outputs"]) != len(graph["outputs"]):
        raise Refusal("graph.value", "a wrapper whose graph has other inputs or outputs")
    inner = Translation(outer.counter, outer.depth + 1, {}, outer.instructions, outer.autocast)
    for argument, operand in zip(graph["inputs"], operands, strict=True):
        _define_input(inner, argument, operand["v"])
    translate_nodes(inner, graph)
    for output, result in zip(graph["outputs"], node["outputs"], strict=True):
        (member, value), *_ = result.items()
        inner_value = _operand(inner, output)
        if member not in _KINDS or member not in output:
            raise Refusal("graph.value", "a wrapper's result")
        outer.define(value.get("name") or value.get("as_name"), _KINDS[member], inner_value["v"])


def _operand(scope: "Translation", argument: dict[str, Any]) -> dict[str, str]:
    (member, value), *_ = argument.items()
    name = value.get("name") or value.get("as_name") if member in _KINDS else None
    if not isinstance(name, str):
        raise Refusal("graph.value", f"{member} where a value is due")
    return {"v": scope.use(name, _KINDS[member])}


def _define_input(inner: "Translation", argument: dict[str, Any], canonical: str | None) -> str:
    (member, value), *_ = argument.items()
    name = value.get("name") or value.get("as_name") if member in _KINDS else None
    if not isinstance(name, str):
        raise Refusal("graph.value", f"{member} as the input of a graph")
    return inner.define(name, _KINDS[member], canonical)
