"""Archives that must be refused, each by the rule it breaks: an honest MLP, altered in one place.

Each sample is a function from the honest entries and a marker path to the altered file. Names say what a checker
could miss.
"""

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, WEIGHTS, Entries

Build = Callable[[Path, Entries, Path], Path]
SAMPLES: dict[str, tuple[str, Build]] = {}


def sample(rule: str) -> Callable[[Build], Build]:
    """Enter a function into the list, by its name."""

    def enter(build: Build) -> Build:
        SAMPLES[build.__name__] = (rule, build)
        return build

    return enter


def change(rule: str, name: str, alter: Callable[[Any], Any], record: str = MODEL) -> None:
    """Enter a sample that changes one JSON record."""
    SAMPLES[name] = (rule, lambda out, entries, marker: ar.write(out, ar.altered(entries, alter, record)))


def graph(d: Any) -> Any:
    return d["graph_module"]["graph"]


def all_entries(entries: Entries) -> list[ar.Entry]:
    return [ar.Entry(f"m/{name}", data) for name, data in entries.items()]


# ---- the archive


@sample("archive.name")
def two_entries_with_one_name(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, [(MODEL, b"{}"), *entries.items()])


@sample("archive.name")
def two_entries_that_differ_in_case(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, [(MODEL.upper(), b"{}"), *entries.items()])


@sample("archive.name")
def an_entry_that_leaves_the_folder(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "../../escape": b"x"})


@sample("archive.name")
def a_second_root_folder(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, [*all_entries(entries), ar.Entry("n/extra/note", b"x")])


def with_root(root: str) -> Build:
    return lambda out, entries, marker: ar.write(out, entries, root=root)


for _number, _root in enumerate(("..", ".", "a\\b", "a\nb", "\u202em", "x" * 256)):
    SAMPLES[f"a_root_that_is_no_plain_file_name_{_number}"] = ("archive.name", with_root(_root))
SAMPLES["a_root_in_utf8_that_is_not_said_to_be"] = ("archive.name", with_root("mod\u00e8le"))


@sample("archive.name")
def a_name_with_a_zero_byte(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "extra/a\0b": b"x"})


@sample("archive.local_header")
def another_name_in_the_local_header(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].local_name = items[0].local_name.swapcase()
    return ar.raw(out, items)


@sample("archive.layout")
def bytes_between_two_entries(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[1].gap = b"hidden"
    return ar.raw(out, items)


@sample("archive.layout")
def fewer_entries_counted_than_listed(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    return ar.raw(out, items, count=len(items) - 1)


@sample("archive.end_record")
def a_comment_after_the_directory(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, all_entries(entries), comment=b"hello")


@sample("archive.end_record")
def bytes_after_the_end(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, all_entries(entries), trailing=b"PK\5\6 and more, longer than an end record")


@sample("archive.entry")
def a_deflated_weight(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    packer = zlib.compressobj(wbits=-15)
    items[0].data = bytes(64 << 20)
    items[0].packed = packer.compress(items[0].data) + packer.flush()
    items[0].crc = zlib.crc32(items[0].data)
    return ar.raw(out, items)


@sample("archive.entry")
def an_encrypted_entry(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].flags = 1
    return ar.raw(out, items)


@sample("archive.entry")
def an_entry_that_is_a_link(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].attributes = 0o120777 << 16
    return ar.raw(out, items)


@sample("archive.crc")
def a_program_changed_after_it_was_saved(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    program = next(e for e in items if e.name.endswith(b"model.json"))
    program.data = program.data.replace(b"relu", b"relv")
    return ar.raw(out, items)


@sample("archive.record")
def native_code_with_compile_flags(out: Path, entries: Entries, marker: Path) -> Path:
    flags = json.dumps({"compiler": f"touch {marker};false"}).encode()
    return ar.write(out, {**entries, "data/aotinductor/model/x.wrapper_compile_flags.json": flags})


@sample("archive.record")
def a_pickled_custom_object(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/constants/custom_obj_0": ar.pickled(marker)})


@sample("archive.record")
def weights_of_a_second_program(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/weights/other_weights_config.json": b"{}"})


@sample("archive.missing")
def a_second_program_without_weights(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "models/other.json": entries[MODEL]})


@sample("archive.programs")
def more_programs_than_are_read(out: Path, entries: Entries, marker: Path) -> Path:
    more = {
        re.sub(r"/model([_.])", rf"/m{i}\1", name): data for i in range(65) for name, data in own_of(entries).items()
    }
    return ar.write(out, {**entries, **more})


@sample("operator.unlisted")
def a_bad_program_beside_the_good_one(out: Path, entries: Entries, marker: Path) -> Path:
    def change(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.from_file.default"

    second = ar.altered(own_of(entries), change)
    return ar.write(out, {**entries, **{second_name(name): data for name, data in second.items()}})


def own_of(entries: Entries) -> Entries:
    """The records that belong to the program alone: its graph, its two tables, its example inputs."""
    return {name: data for name, data in entries.items() if re.search(r"/model[_.]", name)}


def second_name(name: str) -> str:
    return re.sub(r"/model([_.])", r"/other\1", name)


@sample("archive.unused")
def a_weight_that_nothing_refers_to(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/weights/weight_99": b"x" * 64})


@sample("archive.legacy")
def the_pickled_layout_of_old_versions(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(
        out,
        {
            "version": b"8.20",
            "serialized_exported_program.json": entries[MODEL],
            "serialized_state_dict.pt": ar.pickled(marker),
        },
    )


@sample("archive.not_zip")
def a_pickle_instead_of_an_archive(out: Path, entries: Entries, marker: Path) -> Path:
    out.write_bytes(b"\x80\x02c__builtin__\neval\n" + b"." * 64)
    return out


@sample("archive.file")
def a_link_instead_of_a_file(out: Path, entries: Entries, marker: Path) -> Path:
    out.symlink_to("/etc/passwd")
    return out


@sample("archive.end_record")
def half_an_archive(out: Path, entries: Entries, marker: Path) -> Path:
    ar.write(out, entries)
    out.write_bytes(out.read_bytes()[: out.stat().st_size // 2])
    return out


# ---- pickles


@sample("sample.pickle")
def example_inputs_that_run_code(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/sample_inputs/model.pt": ar.pickled(marker)})


@sample("archive.not_zip")
def example_inputs_that_are_a_bare_pickle(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/sample_inputs/model.pt": b"\x80\x02c__builtin__\neval\n." + b"." * 64})


@sample("weight.pickle")
def a_weight_flagged_as_pickle(out: Path, entries: Entries, marker: Path) -> Path:
    def flag(config: Any) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    entries = ar.altered(entries, flag, WEIGHTS)
    first = next(iter(ar.document(entries, WEIGHTS)["config"].values()))["path_name"]
    return ar.write(out, {**entries, f"data/weights/{first}": ar.pickled(marker)})


# ---- JSON and schema


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


# ---- names, expressions, guards, trees


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


def _size(text: Callable[[Path], str]) -> Build:
    def build(out: Path, entries: Entries, marker: Path) -> Path:
        def alter(d: Any) -> None:
            for value in graph(d)["tensor_values"].values():
                for size in value["sizes"]:
                    if "as_expr" in size:
                        size["as_expr"]["expr_str"] = text(marker)

        return ar.write(out, ar.altered(entries, alter))

    return build


SAMPLES["a_size_that_is_python"] = ("expression.syntax", _size(lambda m: f"({ar.touch(m)}, Symbol('s77'))[1]"))
SAMPLES["a_size_that_calls_python"] = ("expression.function", _size(lambda m: "eval(Integer(1))"))
SAMPLES["a_size_that_is_a_factorial"] = ("expression.function", _size(lambda m: "factorial(Integer(30000000))"))
SAMPLES["a_size_that_is_a_tower_of_powers"] = (
    "expression.number",
    _size(lambda m: "Pow(Integer(9), Pow(Integer(9), Integer(9)))"),
)
SAMPLES["a_size_with_a_dunder_symbol"] = ("expression.symbol", _size(lambda m: "Symbol('__class__')"))
SAMPLES["a_size_nested_too_deeply"] = ("expression.size", _size(lambda m: "Add(" * 60 + "Integer(1)" + ")" * 60))
SAMPLES["a_size_of_a_megabyte"] = ("expression.size", _size(lambda m: "Add(" + ", ".join(["Integer(1)"] * 2000) + ")"))


def _guard(text: Callable[[Path], str]) -> Build:
    return lambda out, entries, marker: ar.write(
        out, ar.altered(entries, lambda d: d.update(guards_code=[text(marker)]))
    )


SAMPLES["a_guard_that_ends_its_function"] = (
    "guard.syntax",
    _guard(lambda m: f"True #\n  , 'x')\n{ar.touch(m)}\ndef _(*args):\n  torch._assert(True"),
)
SAMPLES["a_guard_that_calls_open"] = (
    "guard.form",
    _guard(lambda m: f"{ar.touch(m)} == 1".replace("/", "").replace("-", "")),
)
SAMPLES["a_guard_that_imports"] = ("guard.form", _guard(lambda m: "__import__('os') == 1"))
SAMPLES["a_guard_on_an_attribute"] = ("guard.form", _guard(lambda m: "L['x'].grad_fn == 1"))
SAMPLES["a_guard_on_no_input"] = ("guard.input", _guard(lambda m: "L['weights'].size()[0] == 4"))
SAMPLES["a_guard_with_a_giant_power"] = ("guard.form", _guard(lambda m: "L['x'].size()[0] ** 999999999 == 4"))
SAMPLES["a_guard_nested_too_deeply"] = ("guard.syntax", _guard(lambda m: "(" * 400 + "1" + ")" * 400 + " == 1"))


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


# ---- weights


def _weight(alter: Callable[[dict[str, Any]], None]) -> Callable[[Any], None]:
    return lambda config: alter(config["config"]["first.weight"])


def _sizes(*sizes: int) -> list[dict[str, int]]:
    return [{"as_int": n} for n in sizes]


change(
    "tensor.bounds",
    "a_weight_larger_than_its_bytes",
    _weight(lambda w: w["tensor_meta"].update(sizes=_sizes(1 << 19, 1 << 19))),
    WEIGHTS,
)
change(
    "tensor.overlap",
    "a_weight_of_a_few_bytes_seen_a_billion_times",
    _weight(lambda w: w["tensor_meta"].update(sizes=_sizes(1 << 30, 16), strides=_sizes(0, 0))),
    WEIGHTS,
)
change(
    "tensor.bounds",
    "a_weight_that_starts_behind_its_bytes",
    _weight(lambda w: w["tensor_meta"].update(storage_offset={"as_int": 1})),
    WEIGHTS,
)
change(
    "tensor.shape",
    "a_weight_with_a_negative_stride",
    _weight(lambda w: w["tensor_meta"].update(strides=_sizes(-16, 1))),
    WEIGHTS,
)
change(
    "tensor.mismatch",
    "a_weight_of_another_shape_than_the_graph_says",
    _weight(lambda w: w["tensor_meta"].update(sizes=_sizes(16, 32), strides=_sizes(32, 1))),
    WEIGHTS,
)
change("tensor.dtype", "a_weight_of_an_unknown_type", _weight(lambda w: w["tensor_meta"].update(dtype=99)), WEIGHTS)
change("tensor.layout", "a_sparse_weight", _weight(lambda w: w["tensor_meta"].update(layout=1)), WEIGHTS)
change(
    "tensor.device",
    "a_weight_on_another_device",
    _weight(lambda w: w["tensor_meta"]["device"].update(type="privateuseone")),
    WEIGHTS,
)
change(
    "weight.missing",
    "a_weight_in_another_folder",
    _weight(lambda w: w.update(path_name="../../models/model.json")),
    WEIGHTS,
)


@sample("tensor.bounds")
def a_weight_without_bytes(out: Path, entries: Entries, marker: Path) -> Path:
    path = ar.document(entries, WEIGHTS)["config"]["first.weight"]["path_name"]
    return ar.write(out, {**entries, f"data/weights/{path}": b""})


# ---- the graph


def _target(target: str, **fields: Any) -> Callable[[Any], None]:
    return lambda d: graph(d)["nodes"][1].update(target=target, **fields)


def _argument(name: str, **member: Any) -> dict[str, Any]:
    return {"name": name, "arg": member, "kind": 1}


_DROPOUT_INPUTS = [_argument("input", as_tensor={"name": "linear"}), _argument("p", as_float=0.5)]

change("operator.unlisted", "an_operator_that_reads_a_file", _target(
    "torch.ops.aten.from_file.default",
    inputs=[_argument("filename", as_string="/etc/passwd"), _argument("size", as_int=16)],
))  # fmt: skip
change(
    "operator.unlisted",
    "an_operator_that_prints",
    _target("torch.ops.higher_order.print", inputs=[_argument("", as_string="{a.__class__}")]),
)
change("operator.unlisted", "a_function_of_python", _target("builtins.eval"))
change("operator.unlisted", "a_function_of_torch", _target("torch.load"))
change("operator.unlisted", "a_dotted_path_out_of_torch_ops", _target("torch.ops.aten.__class__.mro"))
change("operator.unlisted", "an_operator_of_an_extension", _target("#custom:op"))
change("operator.unlisted", "uninitialised_memory", _target("torch.ops.aten.empty_like.default"))
change("operator.unlisted", "an_operator_with_a_given_result", _target("torch.ops.aten.relu.out"))
change("operator.unlisted", "a_name_without_its_namespace", _target("aten.relu.default"))
change(
    "operator.arguments",
    "an_argument_that_the_operator_does_not_have",
    lambda d: graph(d)["nodes"][1]["inputs"].append(_argument("hook", as_int=1)),
)
change(
    "operator.arguments",
    "an_argument_twice",
    lambda d: graph(d)["nodes"][1]["inputs"].append(graph(d)["nodes"][1]["inputs"][0]),
)
change("operator.arguments", "a_missing_argument", lambda d: graph(d)["nodes"][1]["inputs"].clear())
change(
    "operator.arguments",
    "a_text_where_a_tensor_is_due",
    lambda d: graph(d)["nodes"][1]["inputs"][0].update(arg={"as_string": "x"}),
)
change("operator.training", "dropout_switched_on", _target(
    "torch.ops.aten.dropout.default",
    inputs=[*_DROPOUT_INPUTS, _argument("train", as_bool=True)],
))  # fmt: skip
change("operator.allocation", "a_tensor_of_128_gigabytes", _target(
    "torch.ops.aten.full.default", inputs=[_argument("size", as_ints=[1 << 34]), _argument("fill_value", as_int=1)],
))  # fmt: skip
change("operator.allocation", "a_pool_that_never_ends", _target(
    "torch.ops.aten.adaptive_max_pool2d.default",
    inputs=[_argument("self", as_tensor={"name": "linear"}), _argument("output_size", as_ints=[1 << 31, 1 << 40])],
))  # fmt: skip
change(
    "graph.value",
    "a_value_from_nowhere",
    lambda d: graph(d)["nodes"][1]["inputs"][0].update(arg={"as_tensor": {"name": "ghost"}}),
)
change("graph.value", "a_value_from_the_future", lambda d: graph(d)["nodes"].reverse())
change("graph.value", "a_value_computed_twice", lambda d: graph(d)["nodes"].append(graph(d)["nodes"][0]))
change(
    "graph.value",
    "one_result_too_many",
    lambda d: graph(d)["nodes"][1]["outputs"].append({"as_tensor": {"name": "more"}}),
)
change(
    "graph.signature",
    "an_input_that_is_not_in_the_signature",
    lambda d: graph(d)["inputs"].append({"as_tensor": {"name": "y"}}),
)
change("expression.symbol", "a_symbol_without_a_range", lambda d: d.update(range_constraints={}))


# ---- Headway's record


def _record(text: bytes) -> Build:
    return lambda out, entries, marker: ar.write(out, {**entries, "extra/headway.json": text})


SAMPLES["a_record_with_an_unknown_field"] = ("record.form", _record(b'{"version": 1, "hook": "x"}'))
SAMPLES["a_record_of_an_unknown_version"] = ("record.form", _record(b'{"version": 2}'))
SAMPLES["a_record_of_an_input_that_is_not_there"] = (
    "record.form",
    _record(b'{"version": 1, "dimensions": [{"input": "y", "axis": 0, "name": "batch"}]}'),
)
SAMPLES["a_record_with_a_sample_of_the_wrong_size"] = (
    "record.form",
    _record(
        b'{"version": 1, "samples": [{"inputs": [{"dtype": "int64", "shape": [1000], "data": "AAAA"}], "outputs": []}]}'
    ),
)
