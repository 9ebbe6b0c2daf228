"""Names and tree specs: what torch pastes into source, or imports."""

# ruff: noqa: E501  # a table: one sample a line

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import Entries
from tests.hostile.samples.registry import change, graph, sample


@sample("name.value")
def an_input_name_with_a_default_value(out: Path, entries: Entries, marker: Path) -> Path:
    def swap(value: Any) -> Any:
        if isinstance(value, dict):
            return {("x=" + ar.touch(marker) if k == "x" else k): swap(v) for k, v in value.items()}
        if isinstance(value, list):
            return [swap(v) for v in value]
        return "x=" + ar.touch(marker) if value == "x" else value

    return ar.write(out, ar.altered(entries, swap))


@sample("name.value")
def a_node_name_that_ends_its_line(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, ar.altered(entries, lambda d: graph(d)["nodes"][0].update(name=f"a\n{ar.touch(marker)}")))


def _result_tree(tree: Any) -> Callable[[Any], None]:
    def alter(d: Any) -> None:
        d["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, tree])

    return alter


LEAF = {"type": None, "context": None, "children_spec": []}
change(
    "tree.type",
    "a_tree_that_imports_a_module",
    _result_tree(
        {
            "type": "collections.defaultdict",
            "context": {"default_factory_module": "marker", "default_factory_name": "s", "dict_context": ["a"]},
            "children_spec": [LEAF],
        }
    ),
)
change(
    "tree.type",
    "a_tree_key_that_loads_a_library",
    _result_tree(
        {
            "type": "builtins.dict",
            "context": json.dumps([{"__enum__": True, "fqn": "ctypes:cdll", "name": "/tmp/x.so"}]),
            "children_spec": [LEAF],
        }
    ),
)
change(
    "tree.type",
    "a_tree_of_an_unknown_type_with_an_object",
    _result_tree({"type": "os.system", "context": json.dumps({"a": 1}), "children_spec": [LEAF]}),
)
change(
    "tree.form",
    "a_tree_with_fewer_keys_than_children",
    _result_tree({"type": "builtins.dict", "context": "[]", "children_spec": [LEAF]}),
)
change(
    "graph.signature",
    "a_tree_with_more_leaves_than_results",
    _result_tree({"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}),
)


def _call(**fields: Any) -> Callable[[Any], None]:
    return lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(fields)


def _nested(depth: int) -> Any:
    tree: Any = LEAF
    for _ in range(depth):
        tree = {"type": "builtins.tuple", "context": "null", "children_spec": [tree]}
    return tree


def _tree(type_: Any, context: Any, children: int = 1) -> Callable[[Any], None]:
    return _result_tree({"type": type_, "context": context, "children_spec": [LEAF] * children})


_ENUM = {"__enum__": True, "fqn": "os:environ", "name": "HOME"}
for _name, (_rule, _alter) in {
    "of_a_named_tuple_without_fields": ("tree.form", _tree("collections.namedtuple", json.dumps("os.stat_result"))),
    "of_a_deque": ("tree.type", _tree("collections.deque", "null")),
    "of_a_result_type_with_a_context": ("tree.type", _tree("torch.return_types.max", "[1]")),
    "of_a_dataclass_with_an_enumeration": ("tree.type", _tree("os.stat_result", json.dumps([[_ENUM], []]))),
    "of_a_named_tuple_that_is_an_object": ("tree.type", _tree("collections.namedtuple", {"os": "stat_result"})),
    "of_an_ordered_dict_with_an_enumeration": ("tree.type", _tree("collections.OrderedDict", json.dumps([_ENUM]))),
    "of_a_mapping_with_an_enumeration": ("tree.type", _tree("transformers.x", json.dumps(["a", _ENUM]), 2)),
    "of_a_mapping_with_numbers": ("tree.type", _tree("transformers.x", "[1]")),
    "of_a_list_with_a_context": ("tree.type", _tree("builtins.list", '["os"]')),
    "of_a_type_that_is_a_list": ("tree.type", _tree(["os", "system"], "null")),
    "of_a_type_of_a_thousand_characters": ("tree.type", _tree("x" * 1000, '["a"]')),
    "with_a_key_twice": ("tree.form", _tree("builtins.dict", '["a", "a"]', 2)),
    "with_a_key_twice_written_otherwise": ("tree.form", _tree("builtins.dict", '["1", 1]', 2)),
    "with_a_key_that_cannot_be_printed": ("tree.form", _tree("builtins.dict", '["a\\nb"]')),
    "with_an_empty_key": ("tree.type", _tree("builtins.dict", '[""]')),
    "whose_context_is_no_json": ("json.syntax", _tree("builtins.dict", "__import__('os')")),
    "whose_context_is_a_bomb": ("json.size", _tree("builtins.dict", "[" * 500 + "]" * 500)),
    "nested_twenty_levels": ("tree.form", _result_tree(_nested(20))),
    "of_ten_thousand_leaves": (
        "tree.form",
        _call(out_spec=json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [0] * 10_000}])),
    ),
    "with_a_hook": ("tree.form", _result_tree({**LEAF, "hook": "x"})),
    "with_a_leaf_that_has_children": ("tree.form", _result_tree({**LEAF, "children_spec": [LEAF]})),
    "of_another_protocol": ("tree.form", _call(out_spec=json.dumps([2, LEAF]))),
    "that_is_no_json": ("json.syntax", _call(out_spec="TreeSpec(tuple, None, [*])")),
    "of_arguments_that_are_no_pair": ("tree.form", _call(in_spec=json.dumps([1, LEAF]))),
    "with_fewer_leaves_than_inputs": (
        "graph.signature",
        _call(in_spec=json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": []}])),
    ),
}.items():
    change(_rule, f"a_tree_{_name}", _alter)

change("name.value", "code_as_the_name_of_an_argument", _call(forward_arg_names=["x=print()"]))
change(
    "graph.signature", "a_program_without_a_call_signature", lambda d: d["graph_module"].update(module_call_graph=[])
)
change(
    "graph.signature",
    "a_call_signature_of_a_part_only",
    lambda d: d["graph_module"]["module_call_graph"][0].update(fqn="first"),
)
change(
    "tree.form",
    "a_named_tuple_with_a_field_that_is_code",
    lambda d: d["graph_module"].update(treespec_namedtuple_fields={"os.x": {"field_names": ["a=print()"]}}),
)


@sample("tree.type")
def a_bad_tree_in_a_part_that_nobody_calls(out: Path, entries: Entries, marker: Path) -> Path:
    def alter(d: Any) -> None:
        calls = d["graph_module"]["module_call_graph"]
        tree = {"type": "collections.defaultdict", "context": ["os", "system"], "children_spec": []}
        calls.append({"fqn": "first", "signature": {**calls[0]["signature"], "out_spec": json.dumps([1, tree])}})

    return ar.write(out, ar.altered(entries, alter))


change(
    "name.printable",
    "code_in_the_name_of_a_part",
    lambda d: d["graph_module"]["module_call_graph"].append({"fqn": "a\n__import__('os')"}),
)
change(
    "name.value",
    "a_value_s_description_with_a_name_that_is_code",
    lambda d: graph(d)["tensor_values"].update({"a;b": graph(d)["tensor_values"]["x"]}),
)
change(
    "name.value",
    "a_result_with_a_name_that_is_code",
    lambda d: graph(d)["nodes"][0]["outputs"][0].update(as_tensor={"name": "a=1"}),
)
change("name.printable", "an_input_with_a_key_that_is_too_long", _call(forward_arg_names=["x"], in_spec=json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [
    {"type": "builtins.tuple", "context": "null", "children_spec": [
        {"type": "builtins.dict", "context": json.dumps(["k" * 128]), "children_spec": [
            {"type": "builtins.dict", "context": json.dumps(["k" * 128]), "children_spec": [LEAF]}]}]},
    {"type": "builtins.dict", "context": "[]", "children_spec": []}]}])))  # fmt: skip
