"""JSON and the schema."""

# a table: one sample a line

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, WEIGHTS, Entries
from tests.hostile.samples.registry import add, change, graph, replaced, sample


@sample("json.duplicate")
def a_key_twice(out: Path, entries: Entries, marker: Path) -> Path:
    text = entries[MODEL].replace(b'{"graph_module"', b'{"torch_version": "2.15.0", "graph_module"', 1)
    return ar.write(out, {**entries, MODEL: text})


@sample("json.number")
def a_number_that_is_none(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(
        out, {**entries, MODEL: entries[MODEL].replace(b'"requires_grad": false', b'"requires_grad": NaN', 1)}
    )


@sample("json.number")
def a_number_too_large_for_a_float(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, MODEL: entries[MODEL].replace(b'"min_val": 1', b'"min_val": 1e999', 1)})


@sample("json.number")
def an_integer_of_thousands_of_digits(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, MODEL: entries[MODEL].replace(b'"min_val": 1', b'"min_val": ' + b"9" * 5000, 1)})


@sample("json.size")
def json_nested_a_hundred_thousand_deep(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, MODEL: b"[" * 100_000 + b"]" * 100_000})


@sample("json.syntax")
def json_that_is_not_utf8(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, MODEL: entries[MODEL].replace(b"relu", b"rel\xff")})


change("schema.unknown", "an_unknown_field", lambda d: d.update(hooks=[]))
change("schema.missing", "a_missing_field", lambda d: {k: v for k, v in d.items() if k != "range_constraints"})
change("schema.type", "a_list_where_an_object_is_due", lambda d: graph(d).update(tensor_values=[]))
change("schema.type", "a_boolean_for_an_integer", lambda d: graph(d)["tensor_values"]["x"].update(dtype=True))
change("schema.version", "a_schema_of_the_future", lambda d: d["schema_version"].update(minor=999))
change("schema.torch", "a_torch_of_the_past", lambda d: d.update(torch_version="2.4.0"))
change("schema.value", "an_unknown_verifier", lambda d: d.update(verifiers=["os.system"]))
change(
    "schema.unknown",
    "an_operator_as_an_argument",
    lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg={"as_operator": "torch.load"}),
)
change(
    "schema.unknown",
    "a_custom_object_as_an_argument",
    lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg={"as_custom_obj": {"name": "o", "class_fqn": "os.system"}}),
)
change("schema.unknown", "unknown_node_metadata", lambda d: graph(d)["nodes"][0]["metadata"].update(hook="x"))
change(
    "schema.value",
    "code_in_the_source_of_a_node",
    lambda d: graph(d)["nodes"][0]["metadata"].update(source_fn_stack="a,__import__('os')"),
)


def _text(rule: str, name: str, old: bytes, new: bytes) -> None:
    """A sample whose program's text is changed where ``old`` first stands."""

    def build(out: Path, entries: Entries, marker: Path) -> Path:
        assert old in entries[MODEL]
        return ar.write(out, {**entries, MODEL: entries[MODEL].replace(old, new, 1)})

    add(rule, name, build)


_text("json.syntax", "a_byte_order_mark", b'{"graph_module"', b'\xef\xbb\xbf{"graph_module"')
_text("json.syntax", "half_a_character", b'"relu"', b'"rel\\ud800"')
_text("json.syntax", "halves_of_a_character_in_the_wrong_order", b'"relu"', b'"\\udc00\\ud800"')
_text("json.syntax", "an_overlong_character", b'"relu"', b'"rel\xc0\x80"')
_text("json.syntax", "a_comment_in_json", b'{"graph_module"', b'/* */ {"graph_module"')
_text("json.syntax", "a_comma_too_many", b'{"graph_module"', b'{,"graph_module"')
_text("json.syntax", "an_integer_with_a_leading_zero", b'"min_val": 1', b'"min_val": 01')
_text("json.syntax", "a_control_character_in_a_string", b'"relu"', b'"rel\nu"')
_text("json.number", "minus_infinity", b'"min_val": 1', b'"min_val": -Infinity')
_text("json.number", "a_fraction_of_a_million_digits", b'"min_val": 1', b'"min_val": 0.' + b"1" * 1_000_000)
_text("json.number", "an_integer_of_65_bits", b'"min_val": 1', b'"min_val": 18446744073709551616')
_text(
    "json.duplicate", "a_key_twice_written_otherwise", b'{"graph_module"', b'{"gr\\u0061ph_module": 1, "graph_module"'
)
_text("json.duplicate", "a_key_twice_deep_inside", b'"dtype": 7', b'"dtype": 7, "dtype": 5')
replaced("json.size", "millions_of_empty_lists", MODEL, b"[" + b"[]," * 4_000_001 + b"[]]")
replaced("json.size", "millions_of_numbers", MODEL, b"[" + b"1," * 8_000_001 + b"1]")
replaced("archive.record_size", "a_program_of_65_megabytes", MODEL, b" " * ((64 << 20) + 1))
replaced("json.size", "objects_nested_deeply_between_strings_of_brackets", MODEL, b'{"]}":' * 500 + b"1" + b"}" * 500)
replaced("json.syntax", "a_second_document_behind_the_first", WEIGHTS, b'{"config": {}} {"config": {}}')
replaced("schema.missing", "a_program_that_is_empty", MODEL, b'{"schema_version": {"major": 8, "minor": 1}}')
replaced("schema.version", "a_program_that_is_a_list", MODEL, b"[]")


def _first(**member: Any) -> Callable[[Any], None]:
    return lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg=member)


change("schema.unknown", "a_dictionary_of_arguments", _first(as_string_to_argument={"a": {"as_int": 1}}))
change("schema.unknown", "lists_of_lists_of_tensors", _first(as_nested_tensors=[[{"name": "x"}]]))
change("schema.unknown", "lists_of_lists_of_numbers", _first(as_int_lists=[[1]]))
change("schema.type", "an_argument_of_two_kinds", _first(as_int=1, as_string="x"))
change("schema.type", "an_argument_of_no_kind", _first())
change("schema.type", "a_string_of_a_megabyte", _first(as_string="x" * 1_000_000))
change(
    "schema.unknown",
    "an_opaque_object_among_the_values",
    lambda d: graph(d).update(custom_obj_values={"o": {"name": "o", "class_fqn": "os.system"}}),
)
change("schema.type", "an_empty_opaque_object_among_the_values", lambda d: graph(d).update(custom_obj_values={"o": {}}))
for _kind, _content in {
    "custom_obj": {"arg": {"name": "o", "class_fqn": "__torch__.x"}, "custom_obj_name": "o"},
    "token": {"arg": {"name": "t"}},
}.items():
    change(
        "schema.unknown",
        f"an_input_that_is_a_{_kind}",
        lambda d, k=_kind, c=_content: d["graph_module"]["signature"]["input_specs"].append({k: c}),
    )
for _kind in ("loss_output", "token", "gradient_to_parameter", "gradient_to_user_input"):
    change(
        "schema.unknown",
        f"an_output_that_is_a_{_kind}",
        lambda d, k=_kind: d["graph_module"]["signature"]["output_specs"].append({k: {"arg": {"name": "x"}}}),
    )
change("schema.value", "code_as_the_name_of_an_opset", lambda d: d["opset_version"].update({"__import__('os')": 1}))
change("schema.version", "another_major_schema", lambda d: d["schema_version"].update(major=9))
change("schema.version", "a_schema_before_all", lambda d: d["schema_version"].update(minor=-1))
change("schema.torch", "a_torch_version_with_code", lambda d: d.update(torch_version="2.15.0\nimport os"))
change("schema.unknown", "a_hook_in_the_module_s_metadata", lambda d: d["graph_module"].update(metadata={"hook": "x"}))
change(
    "json.syntax",
    "origins_of_a_node_that_are_no_json",
    lambda d: graph(d)["nodes"][0]["metadata"].update(from_node="os.system"),
)
change(
    "json.size",
    "origins_of_a_node_nested_too_deeply",
    lambda d: graph(d)["nodes"][0]["metadata"].update(custom="[" * 30_000 + "]" * 30_000),
)
change("json.size", "more_nesting_than_a_graph_has", lambda d: _nested_graphs(d, 40))


def _nested_graphs(document: Any, depth: int) -> None:
    body = graph(document)
    for _ in range(depth):
        inner = {**body, "nodes": []}
        body["nodes"].append(
            {
                "target": "torch.ops.higher_order.cond",
                "inputs": [{"name": "", "arg": {"as_graph": {"name": "g", "graph": inner}}}],
                "outputs": [],
                "metadata": {},
            }
        )
        body = inner
