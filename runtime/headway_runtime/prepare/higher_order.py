"""Operators that carry graphs. ``cond`` keeps its two branches; wrappers that change nothing in inference are inlined.

``while_loop`` (it may never end), ``scan``, ``map`` and everything else are refused as operators off the list.
"""

from typing import TYPE_CHECKING, Any

from headway_runtime.prepare.errors import Refusal

if TYPE_CHECKING:
    from headway_runtime.prepare.graph import Translation

_KINDS = {"as_tensor": "tensor", "as_sym_int": "int", "as_sym_float": "float", "as_sym_bool": "bool"}


def translate(outer: "Translation", name: str, node: dict[str, Any]) -> None:
    """Translate a call of ``torch.ops.higher_order.<name>``. Raises Refusal ``operator.unlisted`` for what is not
    supported.
    """
    inputs = [i["arg"] for i in node["inputs"]]
    if name == "cond":
        _cond(outer, inputs, node)
    elif name == "wrap_with_set_grad_enabled":
        _inline(outer, inputs, 1, node)
    elif name == "wrap_with_autocast":
        if len(inputs) < 5 or inputs[2] != {"as_bool": False}:
            raise Refusal("operator.value", "autocast is enabled in the program; export it outside of torch.autocast")
        _inline(outer, inputs, 4, node)
    else:
        raise Refusal("operator.unlisted", f"higher_order.{name}")


def _cond(outer: "Translation", inputs: list[dict[str, Any]], node: dict[str, Any]) -> None:
    from headway_runtime.prepare import arguments

    if len(inputs) != 4 or "as_graph" not in inputs[1] or "as_graph" not in inputs[2]:
        raise Refusal("operator.arguments", "cond takes a predicate, two graphs and operands")
    predicate = _operand(outer, inputs[0])
    (member, value), *_ = inputs[3].items()
    if member not in {"as_tensors", "as_sym_ints", "as_ints"}:
        raise Refusal("operator.arguments", f"operands of cond as {member}")
    operands = arguments.untyped(member, value, outer)
    branches = [_branch(outer, graph["as_graph"]["graph"], operands) for graph in inputs[1:3]]
    out = outer.results(node["outputs"])
    if any(not isinstance(o, str) for o in out) or any(len(b["outputs"]) != len(out) for b in branches):
        raise Refusal("graph.value", "the branches of cond and its results differ in number")
    for value_name in out:
        outer.counter.aliases.shared(value_name, [o["v"] for o in operands if isinstance(o, dict)])
    outer.emit("cond", [predicate, *operands], {}, out, branches=branches)


def _branch(outer: "Translation", graph: dict[str, Any], operands: list[Any]) -> dict[str, Any]:
    """A graph with a scope of its own: only its operands come in."""
    from headway_runtime.prepare.graph import MAX_NESTING, Translation, translate_nodes

    if outer.depth >= MAX_NESTING or len(graph["inputs"]) != len(operands):
        raise Refusal("graph.value", "branches nested too deeply, or with other inputs than operands")
    inner = Translation(outer.counter, outer.depth + 1)
    before = set(outer.counter.aliases.written)
    own = [_define_input(inner, argument, None) for argument in graph["inputs"]]
    for name in own:
        outer.counter.aliases.fresh(name)
    translate_nodes(inner, graph)
    if (outer.counter.aliases.written - before) & set(own):
        raise Refusal("write.branch")
    return {"inputs": own, "nodes": inner.instructions, "outputs": [_operand(inner, o) for o in graph["outputs"]]}


def _inline(outer: "Translation", inputs: list[dict[str, Any]], at: int, node: dict[str, Any]) -> None:
    """The graph at position ``at``, with the arguments behind it, becomes part of the outer graph."""
    from headway_runtime.prepare.graph import MAX_NESTING, Translation, translate_nodes

    if len(inputs) <= at or "as_graph" not in inputs[at] or outer.depth >= MAX_NESTING:
        raise Refusal("operator.arguments", "a wrapper without a graph")
    graph = inputs[at]["as_graph"]["graph"]
    operands = [_operand(outer, argument) for argument in inputs[at + 1 :]]
    if len(operands) != len(graph["inputs"]) or len(node["outputs"]) != len(graph["outputs"]):
        raise Refusal("graph.value", "a wrapper whose graph has other inputs or outputs")
    inner = Translation(outer.counter, outer.depth + 1, {}, outer.instructions)
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
