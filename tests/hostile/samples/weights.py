"""Weights and what describes them."""

# ruff: noqa: E501  # a table: one sample a line

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import WEIGHTS, Entries
from tests.hostile.samples.registry import argument, change, graph, sample, sizes


def _weight(alter: Callable[[dict[str, Any]], None]) -> Callable[[Any], None]:
    return lambda config: alter(config["config"]["first.weight"])


change(
    "tensor.bounds",
    "a_weight_larger_than_its_bytes",
    _weight(lambda w: w["tensor_meta"].update(sizes=sizes(1 << 19, 1 << 19))),
    WEIGHTS,
)
change(
    "tensor.overlap",
    "a_weight_of_a_few_bytes_seen_a_billion_times",
    _weight(lambda w: w["tensor_meta"].update(sizes=sizes(1 << 30, 16), strides=sizes(0, 0))),
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
    _weight(lambda w: w["tensor_meta"].update(strides=sizes(-16, 1))),
    WEIGHTS,
)
change(
    "tensor.mismatch",
    "a_weight_of_another_shape_than_the_graph_says",
    _weight(lambda w: w["tensor_meta"].update(sizes=sizes(16, 32), strides=sizes(32, 1))),
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


CONSTANTS = "data/constants/model_constants_config.json"


def _meta(**fields: Any) -> Callable[[Any], None]:
    return _weight(lambda w: w["tensor_meta"].update(fields))


change("tensor.shape", "a_weight_of_a_negative_size", _meta(sizes=sizes(-32, 16)), WEIGHTS)
change(
    "tensor.shape",
    "a_weight_whose_strides_leave_64_bits",
    _meta(sizes=sizes(1, 1), strides=sizes(1 << 62, 1 << 62)),
    WEIGHTS,
)
change(
    "tensor.shape", "an_empty_weight_with_a_huge_stride", _meta(sizes=sizes(0, 16), strides=sizes(1 << 62, 1)), WEIGHTS
)
change(
    "tensor.bounds",
    "an_empty_weight_that_starts_elsewhere",
    _meta(sizes=sizes(0, 16), storage_offset={"as_int": 1 << 39}),
    WEIGHTS,
)
change("tensor.shape", "a_weight_of_seventeen_axes", _meta(sizes=sizes(*[1] * 17), strides=sizes(*[1] * 17)), WEIGHTS)
change(
    "tensor.shape",
    "a_weight_of_a_hundred_thousand_axes",
    _meta(sizes=sizes(*[2] * 100_000), strides=sizes(*[1] * 100_000)),
    WEIGHTS,
)
change("tensor.shape", "a_weight_with_fewer_strides_than_sizes", _meta(strides=sizes(1)), WEIGHTS)
change("tensor.shape", "a_weight_of_2_to_the_63_elements", _meta(sizes=sizes(1 << 31, 1 << 32)), WEIGHTS)
change(
    "tensor.shape",
    "a_weight_of_a_symbolic_size",
    _meta(sizes=[{"as_expr": {"expr_str": "Symbol('s77')"}}, {"as_int": 16}]),
    WEIGHTS,
)
change("tensor.shape", "a_weight_with_a_negative_offset", _meta(storage_offset={"as_int": -1}), WEIGHTS)
change("tensor.overlap", "a_weight_whose_rows_overlap", _meta(sizes=sizes(32, 16), strides=sizes(1, 1)), WEIGHTS)
change("tensor.overlap", "a_weight_that_repeats_one_column", _meta(sizes=sizes(32, 16), strides=sizes(1, 0)), WEIGHTS)
change("tensor.bounds", "a_weight_of_a_larger_type", _meta(dtype=8), WEIGHTS)
change("tensor.mismatch", "a_weight_of_another_type_of_one_size", _meta(dtype=4), WEIGHTS)
change(
    "tensor.mismatch",
    "a_weight_that_is_complex_here_only",
    _meta(dtype=10, sizes=sizes(16, 16), strides=sizes(16, 1)),
    WEIGHTS,
)
change("tensor.bounds", "a_weight_of_complex_numbers_beyond_its_bytes", _meta(dtype=11), WEIGHTS)
change("tensor.dtype", "a_quantised_weight", _meta(dtype=14), WEIGHTS)
change("tensor.dtype", "a_weight_of_a_negative_type", _meta(dtype=-1), WEIGHTS)
change(
    "tensor.device",
    "a_weight_on_the_device_meta",
    _weight(lambda w: w["tensor_meta"]["device"].update(type="meta")),
    WEIGHTS,
)
change(
    "tensor.device",
    "a_weight_on_a_device_of_a_huge_number",
    _weight(lambda w: w["tensor_meta"]["device"].update(index=1 << 40)),
    WEIGHTS,
)
change("tensor.layout", "a_weight_of_another_library_s_layout", _meta(layout=6), WEIGHTS)
change("weight.pickle", "a_weight_that_is_not_described", _weight(lambda w: w.update(tensor_meta=None)), WEIGHTS)
change(
    "weight.pickle",
    "a_constant_that_is_an_object",
    lambda c: c["config"].update(
        o={"path_name": "custom_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    ),
    CONSTANTS,
)
change("weight.missing", "a_weight_among_the_constants", _weight(lambda w: w.update(path_name="tensor_0")), WEIGHTS)
change("weight.missing", "a_weight_in_no_record", _weight(lambda w: w.update(path_name="weight_77")), WEIGHTS)
change(
    "weight.missing",
    "a_weight_with_a_newline_in_its_path",
    _weight(lambda w: w.update(path_name="weight_0\n")),
    WEIGHTS,
)
change("weight.missing", "a_weight_the_table_lacks", lambda c: c["config"].pop("first.weight") and None, WEIGHTS)
change(
    "name.printable",
    "a_weight_with_a_name_that_cannot_be_printed",
    lambda c: c["config"].update({"a\u202eb": c["config"]["first.weight"]}),
    WEIGHTS,
)
change(
    "name.printable",
    "a_weight_with_a_name_of_ten_thousand_characters",
    lambda c: c["config"].update({"a" * 10_000: c["config"]["first.weight"]}),
    WEIGHTS,
)
change("schema.unknown", "a_weight_with_a_loader", _weight(lambda w: w.update(loader="os.system")), WEIGHTS)
change(
    "schema.missing",
    "a_weight_that_does_not_say_whether_it_is_a_pickle",
    _weight(lambda w: w.__delitem__("use_pickle")),
    WEIGHTS,
)


@sample("tensor.bool")
def one_record_as_booleans_and_as_numbers(out: Path, entries: Entries, marker: Path) -> Path:
    """``first.bias`` (float32) and ``second.bias`` (bool) in the same bytes."""

    def share(config: Any) -> None:
        table = config["config"]
        table["second.bias"].update(path_name=table["first.bias"]["path_name"])
        table["second.bias"]["tensor_meta"].update(dtype=12)

    def describe(d: Any) -> None:
        graph(d)["tensor_values"]["p_second_bias"].update(dtype=12)

    old = ar.document(entries, WEIGHTS)["config"]["second.bias"]["path_name"]
    changed = ar.altered(ar.altered(entries, share, WEIGHTS), describe)
    return ar.write(out, {n: d for n, d in changed.items() if n != f"data/weights/{old}"})


# ---- writes


def _in_place(value: str) -> Callable[[Any], None]:
    def alter(d: Any) -> None:
        graph(d)["tensor_values"]["w"] = graph(d)["tensor_values"][value]
        graph(d)["nodes"].insert(0, {
            "target": "torch.ops.aten.zero_.default", "inputs": [argument("self", as_tensor={"name": value})],
            "outputs": [{"as_tensor": {"name": "w"}}], "metadata": {},
        })  # fmt: skip

    return alter


change("write.parameter", "a_write_to_a_parameter", _in_place("p_first_weight"))


@sample("write.parameter")
def a_write_to_a_view_of_a_parameter(out: Path, entries: Entries, marker: Path) -> Path:
    def alter(d: Any) -> None:
        meta = graph(d)["tensor_values"]["p_first_weight"]
        graph(d)["tensor_values"].update(view=meta, w=meta)
        node = {"target": "torch.ops.aten.view.default", "metadata": {}, "outputs": [{"as_tensor": {"name": "view"}}],
                "inputs": [argument("self", as_tensor={"name": "p_first_weight"}), argument("size", as_ints=[32, 16])]}  # fmt: skip
        write = {"target": "torch.ops.aten.mul_.Scalar", "metadata": {}, "outputs": [{"as_tensor": {"name": "w"}}],
                 "inputs": [argument("self", as_tensor={"name": "view"}), argument("other", as_int=2)]}  # fmt: skip
        graph(d)["nodes"][:0] = [node, write]

    return ar.write(out, ar.altered(entries, alter))
