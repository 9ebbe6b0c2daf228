"""The graph of a checked document, translated into our own flat program: canonical names, listed operators, no
metadata.

An instruction is ``{"op", "args", "kwargs", "out"}``; ``out`` is a value name, a nested list of names for several
results (null where a result is not used), or null. ``cond`` carries its two branches as graphs. Every value is
defined once, before its use.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare.container import strict_json, tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import symbolic
from headway_runtime.prepare.translate import arguments, higher_order, names, operators, preconditions, writes

MAX_NODES = 100_000
MAX_NESTING = 8

_METADATA = {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom", "seq_nr"}
_RESULT_KINDS = {"as_tensor": "tensor", "as_sym_int": "int", "as_sym_float": "float", "as_sym_bool": "bool"}
# Checks of element types, which export writes after it knew them; the device they name is ours to choose.
_DROPPED = {"aten._assert_tensor_metadata.default"}
# In inference form these hand back their first argument unchanged.
_IDENTITIES = {f"aten.{name}.default" for name in preconditions.DROPOUTS}

# Operators off the list of which more can be said than that.
_TELLING = (
    (
        re.compile(
            r"aten\.(rand|normal|bernoulli|multinomial|uniform|rrelu|poisson|binomial|exponential|geometric|cauchy|"
            r"log_normal|fractional)\w*\.[A-Za-z_]+\Z",
            re.ASCII,
        ),
        "operator.random",
    ),
    (re.compile(r"aten\.(_native_batch_norm_legit\w*|native_batch_norm|native_dropout)\.\w+\Z"), "operator.training"),
    (re.compile(r"aten\.(new_)?empty\w*\.\w+\Z", re.ASCII), "operator.unwritten"),
)
# Levels of torch.vmap, which only torch's own interpreter keeps track of.
_VMAP = "torch._functorch.predispatch."

_ARGUMENT_KINDS = {None, 1, 2}  # by position, by name; we go by name
Instruction = dict[str, Any]


@dataclass(slots=True)
class Counter:
    """Shared by a graph and its branches: canonical names, the alias analysis, and how often each operator is used."""

    values: int = 0
    nodes: int = 0
    aliases: writes.Aliases = field(default_factory=writes.Aliases)
    used: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # of each canonical value: tensor, int, float, bool
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the file says of the tensors that an operator of ours takes, by its result's name and the argument's."""

    def name(self) -> str:
        self.values += 1
        return f"v{self.values - 1}"


@dataclass(slots=True)
class Translation:
    """One graph being translated. ``scope`` maps the file's value names to (canonical name, kind)."""

    counter: Counter
    depth: int = 0
    scope: dict[str, tuple[str, str]] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    autocast: bool = False  # whether the graph runs under an autocast that is on
    tensors: dict[str, Any] = field(default_factory=dict)  # what the file says of each, by its name there

    def define(self, name: str, kind: str, canonical: str | None = None) -> str:
        """Enter a new value. Raises Refusal ``graph.value`` when it exists."""
        names.check_value(name)
        if name in self.scope:
            raise Refusal("graph.value", f"{name} is computed twice")
        canonical = canonical or self.counter.name()
        self.scope[name] = (canonical, kind)
        if (before := self.counter.kinds.setdefault(canonical, kind)) != kind:
            # a tensor that passed for a number would be written to unseen: numbers have no aliases
            raise Refusal("graph.value", f"{name} is a {kind}, and the same value a {before}")
        return canonical

    def is_input(self, name: str) -> bool:
        """Whether the name is that of an input of the program."""
        return self.scope.get(name, ("", ""))[0].startswith("i")

    def use(self, name: str, kind: str) -> str:
        """Canonical name of a value already computed, of this kind."""
        canonical, actual = self.scope.get(name, ("", ""))
        if actual != kind:
            raise Refusal("graph.value", f"{name} is {actual or 'not computed here'}, needed as {kind}")
        return canonical

    def operand(self, name: str) -> str:
        """Canonical name of a value of any kind: torch lists the operands of graphs as tensors, whatever they are."""
        if name not in self.scope:
            raise Refusal("graph.value", f"{name} is not computed here")
        return self.scope[name][0]

    def node(self, node: dict[str, Any]) -> None:
        """Translate one node of the file."""
        self.counter.nodes += 1
        if self.counter.nodes > MAX_NODES:
            raise Refusal("graph.size", f"more than {MAX_NODES}")
        _check_metadata(node["metadata"])
        if node.get("name") is not None:
            names.check_value(node["name"])
        for item in node["inputs"]:
            if item.get("kind") not in _ARGUMENT_KINDS:
                raise Refusal("schema.value", f"an argument of kind {item['kind']}")
            if "as_graph" in item["arg"]:
                names.check_value(item["arg"]["as_graph"]["name"])
        target = operators.short_name(node["target"])
        self.counter.used[target] = self.counter.used.get(target, 0) + 1
        if node["target"] in operators.SCALAR_FUNCTIONS:
            self._scalar(node)
        elif target.startswith("higher_order."):
            higher_order.translate(self, target.removeprefix("higher_order."), node)
        else:
            self._operator(target, node)

    def _scalar(self, node: dict[str, Any]) -> None:
        target, inputs = node["target"], node["inputs"]
        if len(inputs) != operators.SCALAR_FUNCTIONS[target]:
            raise Refusal("operator.arguments", f"{target} of {len(inputs)} arguments")
        args = [arguments.translate(i["arg"], "Scalar", self) for i in inputs]
        if len(node["outputs"]) != 1:
            raise Refusal("graph.value", f"{target} has one result")
        (out,) = self.results(node["outputs"])
        self.emit(target, args, {}, out)

    def _operator(self, target: str, node: dict[str, Any]) -> None:
        if target.startswith(_VMAP):
            raise Refusal("operator.vmap")
        if target in operators.GONE:
            gone = f"{target} of torch {operators.GONE[target]}; this Headway runs torch {operators.TORCH}"
            raise Refusal("operator.version", gone)
        signature = operators.signature(target) if node["target"].startswith("torch.ops.") else None
        if signature is None:
            rule = next((rule for pattern, rule in _TELLING if pattern.match(target)), "operator.unlisted")
            raise Refusal(rule, target)
        given: dict[str, Any] = {}
        for position, item in enumerate(node["inputs"]):
            parameter = next((p for p in signature.parameters if p.name == item["name"]), None)
            if parameter is None or item["name"] in given:
                raise Refusal("operator.arguments", f"{target} has no argument {item['name']!r}, or has it twice")
            try:
                given[parameter.name] = arguments.translate(item["arg"], parameter.type, self)
            except Refusal as r:
                raise r.inside(position).inside("inputs") from None
        missing = [p.name for p in signature.parameters if p.required and p.name not in given]
        if missing:
            raise Refusal("operator.arguments", f"{target} needs {missing}")
        preconditions.check(target, given)
        if target in _DROPPED:
            return
        if target in _IDENTITIES:
            self._rename(given[signature.parameters[0].name], node["outputs"])
            return
        out = self.results(node["outputs"])
        _check_results(signature, node["outputs"])
        self.counter.aliases.apply(signature, {k: references(v) for k, v in given.items()}, [results(o) for o in out])
        if target in operators.OWN:
            self._describe(out[0], node["inputs"])
        args, kwargs = _positional(signature, given)
        single = out[0] if len(signature.returns) == 1 else out
        self.emit(target, args, kwargs, single if signature.returns else None)

    def _describe(self, result: str, inputs: list[dict[str, Any]]) -> None:
        names_ = {i["name"]: i["arg"]["as_tensor"]["name"] for i in inputs if "as_tensor" in i["arg"]}
        if missing := sorted(set(names_.values()) - self.tensors.keys()):
            raise Refusal("graph.signature", f"{missing[0]} has no description")
        self.counter.described[result] = {argument: self.tensors[name] for argument, name in names_.items()}

    def _rename(self, argument: Any, outputs: list[dict[str, Any]]) -> None:
        if len(outputs) != 1 or "as_tensor" not in outputs[0] or not isinstance(argument, dict) or "v" not in argument:
            raise Refusal("graph.value", "an identity of something that is no tensor")
        self.define(outputs[0]["as_tensor"]["name"], "tensor", argument["v"])

    def results(self, outputs: list[dict[str, Any]]) -> list[Any]:
        """Canonical names for a node's results, nested as the file nests them."""
        named: list[Any] = []
        for output in outputs:
            (member, value), *_ = output.items()
            if member == "as_tensors":
                named.append([self.define(v["name"], "tensor") for v in value])
            elif member == "as_none":
                named.append(None)
            elif member in _RESULT_KINDS:
                name = value.get("name") or value.get("as_name")
                if not isinstance(name, str):
                    raise Refusal("graph.value", "a result that is a constant")
                named.append(self.define(name, _RESULT_KINDS[member]))
            else:
                raise Refusal("graph.value", f"{member} as a result")
        return named

    def emit(self, op: str, args: list[Any], kwargs: dict[str, Any], out: Any, **more: Any) -> None:
        self.instructions.append({"op": op, "args": args, "kwargs": kwargs, "out": out, **more})


def translate_nodes(translation: Translation, graph: dict[str, Any]) -> None:
    """All nodes of a graph, in order; the caller has defined its inputs."""
    _check_values(graph)
    translation.tensors = graph.get("tensor_values", {})
    for i, node in enumerate(graph["nodes"]):
        try:
            translation.node(node)
        except Refusal as r:
            raise r.inside(i).inside("nodes") from None


def results(out: Any) -> list[str]:
    """Names of all values that an instruction computes."""
    if isinstance(out, list):
        return [name for item in out for name in results(item)]
    return [] if out is None else [out]


def references(argument: Any) -> list[str]:
    """Names of all values in a canonical argument."""
    if isinstance(argument, list):
        return [name for item in argument for name in references(item)]
    return [argument["v"]] if isinstance(argument, dict) and "v" in argument else []


def _check_results(signature: operators.Signature, outputs: list[dict[str, Any]]) -> None:
    if len(outputs) != len(signature.returns) and not (not signature.returns and outputs == [{"as_none": True}]):
        raise Refusal("graph.value", f"{signature.name} has {len(signature.returns)} results, not {len(outputs)}")
    for output, (type_, _) in zip(outputs, signature.returns, strict=False):
        (member,) = output
        is_list = type_.endswith("[]")
        if is_list != (member == "as_tensors") or (type_ == "Tensor" and member not in {"as_tensor", "as_none"}):
            raise Refusal("graph.value", f"{signature.name} returns {type_}, not {member}")


def _positional(signature: operators.Signature, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional as far as arguments are given without a gap, the rest by keyword."""
    args: list[Any] = []
    for p in signature.parameters:
        if p.keyword_only or p.name not in given:
            break
        args.append(given[p.name])
    taken = {p.name for p in signature.parameters[: len(args)]}
    return args, {name: value for name, value in given.items() if name not in taken}


def _check_metadata(metadata: dict[str, str]) -> None:
    """Node metadata is dropped, and yet held to what export writes: a file that deviates was not written by it."""
    if unknown := metadata.keys() - _METADATA:
        raise Refusal("schema.unknown", f"metadata {sorted(unknown)[:3]}")
    if not set(metadata.get("source_fn_stack", "")).isdisjoint("()[]{}'\"=:`\\"):
        raise Refusal("schema.value", "source_fn_stack")
    for key in ("custom", "from_node"):
        if key in metadata:
            strict_json.parse(metadata[key].encode())


def _check_values(graph: dict[str, Any]) -> None:
    """The descriptions of all values: tensors of known kinds, symbolic sizes of the accepted grammar."""
    for key, step in (
        ("tensor_values", "sizes"),
        ("sym_int_values", ""),
        ("sym_float_values", ""),
        ("sym_bool_values", ""),
    ):
        for name, value in graph.get(key, {}).items():
            try:
                names.check_value(name)
                if step:
                    tensors.check_meta(value)
                for size in [*value["sizes"], *value["strides"], value["storage_offset"]] if step else [value]:
                    if "as_expr" in size:
                        symbolic.parse(size["as_expr"]["expr_str"])
            except Refusal as r:
                raise r.inside(name).inside(key) from None
