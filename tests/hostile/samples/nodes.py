"""The graph: operators, arguments, values."""

# ruff: noqa: E501  # a table: one sample a line

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import Entries
from tests.hostile.samples.registry import argument, change, graph, sample


def _target(target: str, **fields: Any) -> Callable[[Any], None]:
    return lambda d: graph(d)["nodes"][1].update(target=target, **fields)


_DROPOUT_INPUTS = [argument("input", as_tensor={"name": "linear"}), argument("p", as_float=0.5)]

change("operator.unlisted", "an_operator_that_reads_a_file", _target(
    "torch.ops.aten.from_file.default",
    inputs=[argument("filename", as_string="/etc/passwd"), argument("size", as_int=16)],
))  # fmt: skip
change(
    "operator.unlisted",
    "an_operator_that_prints",
    _target("torch.ops.higher_order.print", inputs=[argument("", as_string="{a.__class__}")]),
)
change("operator.unlisted", "a_function_of_python", _target("builtins.eval"))
change("operator.unlisted", "a_function_of_torch", _target("torch.load"))
change("operator.unlisted", "a_dotted_path_out_of_torch_ops", _target("torch.ops.aten.__class__.mro"))
change("operator.unlisted", "an_operator_of_an_extension", _target("#custom:op"))
change("operator.unwritten", "uninitialised_memory", _target("torch.ops.aten.empty_like.default"))
change("operator.unlisted", "an_operator_with_a_given_result", _target("torch.ops.aten.relu.out"))
change("operator.unlisted", "a_name_without_its_namespace", _target("aten.relu.default"))
change(
    "operator.arguments",
    "an_argument_that_the_operator_does_not_have",
    lambda d: graph(d)["nodes"][1]["inputs"].append(argument("hook", as_int=1)),
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
    inputs=[*_DROPOUT_INPUTS, argument("train", as_bool=True)],
))  # fmt: skip
change("operator.allocation", "a_tensor_of_128_gigabytes", _target(
    "torch.ops.aten.full.default", inputs=[argument("size", as_ints=[1 << 34]), argument("fill_value", as_int=1)],
))  # fmt: skip
change("operator.allocation", "a_pool_that_never_ends", _target(
    "torch.ops.aten.adaptive_max_pool2d.default",
    inputs=[argument("self", as_tensor={"name": "linear"}), argument("output_size", as_ints=[1 << 31, 1 << 40])],
))  # fmt: skip


def _node(target: str, *inputs: dict[str, Any], results: int = 1) -> Callable[[Any], None]:
    """Another operator in the place of the ReLU."""
    return _target(f"torch.ops.{target}", inputs=list(inputs))


X = argument("self", as_tensor={"name": "linear"})
HUGE = 1 << 40

for _number, _name in enumerate(
    [
        "aten.resize_.default",
        "aten.set_.source_Tensor",
        "aten.set.source_Tensor",
        "aten.as_strided_.default",
        "aten.save.default",
        "aten._print.default",
        "aten.relu.default.x",
        "aten.relu",
        "aten..default",
        "aten.relu.__class__",
        "prims.relu.default",
        "quantized.linear.default",
        "inductor.resize_storage_bytes_.default",
        "mkldnn._linear_pointwise.default",
        "higher_order.triton_kernel_wrapper_mutation",
        "higher_order.run_and_save_rng_state",
        "higher_order.invoke_subgraph",
        "higher_order.call_torchbind",
        "higher_order.auto_functionalized",
        "higher_order.with_effects",
        "higher_order.executorch_call_delegate",
        "higher_order.out_dtype",
        "higher_order.hints_wrapper",
        "custom.op.default",
    ]
):
    change("operator.unlisted", f"an_operator_off_the_list_{_number}", _node(_name, X))
for _number, _name in enumerate(
    (
        "os.system",
        "torch.ops",
        "_operator.attrgetter",
        "_operator.call",
        "_operator.lshift",
        "math.factorial",
        "torch.sym_sqrt",
        "builtins.getattr",
        "numpy.load",
        "",
    )
):
    change("operator.unlisted", f"a_function_that_is_no_operator_{_number}", _target(_name, inputs=[X]))

for _name, (_operator, _inputs) in {
    "repeated_a_trillion_times": ("repeat.default", [X, argument("repeats", as_ints=[1 << 20, 1 << 20])]),
    "padded_by_gigabytes": ("constant_pad_nd.default", [X, argument("pad", as_ints=[HUGE, 0])]),
    "tiled": ("tile.default", [X, argument("dims", as_ints=[1 << 20, 1 << 20])]),
    "expanded": ("expand.default", [X, argument("size", as_ints=[1 << 20, 1 << 20])]),
    "viewed_a_trillion_times": ("as_strided.default", [X, argument("size", as_ints=[1 << 20, 1 << 20]), argument("stride", as_ints=[0, 0])]),
    "that_counts_to_a_trillion": ("arange.default", [argument("end", as_int=HUGE)]),
    "that_counts_from_minus_a_trillion": ("arange.start", [argument("start", as_int=-HUGE), argument("end", as_int=0)]),
    "that_counts_in_tiny_steps": ("arange.start_step", [argument("start", as_int=0), argument("end", as_int=9), argument("step", as_float=1e-12)]),
    "of_an_identity_matrix": ("eye.default", [argument("n", as_int=1 << 28)]),
    "of_a_window": ("hann_window.default", [argument("window_length", as_int=HUGE)]),
    "on_a_diagonal_far_away": ("diag_embed.default", [X, argument("offset", as_int=HUGE)]),
    "transformed_to_a_trillion_points": ("fft_fft.default", [X, argument("n", as_int=HUGE)]),
    "enlarged_a_billion_times": ("upsample_nearest1d.vec", [argument("input", as_tensor={"name": "linear"}), argument("output_size", as_none=True), argument("scale_factors", as_floats=[1e30])]),
    "split_into_a_trillion_parts": ("tensor_split.sections", [X, argument("sections", as_int=HUGE)]),
    "of_a_list_of_a_million_factors": ("repeat.default", [X, argument("repeats", as_ints=[3] * 1_000_000)]),
}.items():  # fmt: skip
    change("operator.allocation", f"a_tensor_{_name}", _node(f"aten.{_operator}", *_inputs))

_ATTENTION = [argument(n, as_tensor={"name": "linear"}) for n in ("query", "key", "value")]
_NORM = [
    argument("input", as_tensor={"name": "linear"}),
    *(argument(n, as_none=True) for n in ("weight", "bias", "running_mean", "running_var")),
]
_NORM_END = [
    argument("momentum", as_float=0.1),
    argument("eps", as_float=1e-5),
    argument("cudnn_enabled", as_bool=False),
]


def _lstm(*, train: bool = False, layers: int = 1, params: int = 4) -> list[dict[str, Any]]:
    one = {"name": "linear"}
    return [
        argument("input", as_tensor=one), argument("hx", as_tensors=[one, one]), argument("params", as_tensors=[one] * params),
        argument("has_biases", as_bool=True), argument("num_layers", as_int=layers), argument("dropout", as_float=0.0),
        argument("train", as_bool=train), argument("bidirectional", as_bool=False), argument("batch_first", as_bool=True),
    ]  # fmt: skip


for _name, (_rule, _operator, _inputs) in {
    "attention_that_drops_out": ("operator.training", "scaled_dot_product_attention.default", [*_ATTENTION, argument("dropout_p", as_float=0.5)]),
    "batch_norm_in_training": ("operator.training", "batch_norm.default", [*_NORM, argument("training", as_bool=True), *_NORM_END]),
    "a_recurrent_layer_in_training": ("operator.training", "lstm.input", _lstm(train=True)),
    "a_recurrent_layer_of_too_few_weights": ("operator.value", "lstm.input", _lstm(params=3)),
    "a_recurrent_layer_of_a_billion_layers": ("operator.value", "lstm.input", _lstm(layers=1 << 30)),
    "an_equation_that_is_code": ("operator.value", "einsum.default", [argument("equation", as_string="__import__('os')"), argument("tensors", as_tensors=[{"name": "linear"}])]),
    "a_text_with_a_newline": ("operator.value", "gelu.default", [X, argument("approximate", as_string="none\n")]),
    "a_text_of_a_thousand_characters": ("operator.value", "gelu.default", [X, argument("approximate", as_string="x" * 1000)]),
    "pinned_memory": ("operator.value", "zeros.default", [argument("size", as_ints=[2]), argument("pin_memory", as_bool=True)]),
    "classes_that_a_request_counts": ("operator.value", "one_hot.default", [X]),
    "a_stride_beyond_32_bits": ("operator.value", "max_pool1d.default", [X, argument("kernel_size", as_ints=[2]), argument("stride", as_ints=[HUGE])]),
    "an_axis_beyond_32_bits": ("operator.value", "select.int", [X, argument("dim", as_int=HUGE), argument("index", as_int=0)]),
    "a_list_of_a_million_axes": ("operator.value", "permute.default", [X, argument("dims", as_ints=[0] * 1_000_000)]),
    "a_power_of_a_matrix_that_never_ends": ("operator.value", "matrix_power.default", [X, argument("n", as_int=1 << 26)]),
    "an_unknown_element_type": ("tensor.dtype", "to.dtype", [X, argument("dtype", as_scalar_type=99)]),
    "an_unknown_memory_format": ("tensor.layout", "clone.default", [X, argument("memory_format", as_memory_format=9)]),
    "a_sparse_layout": ("tensor.layout", "zeros.default", [argument("size", as_ints=[2]), argument("layout", as_layout=1)]),
    "another_device": ("tensor.device", "zeros.default", [argument("size", as_ints=[2]), argument("device", as_device={"type": "meta"})]),
    "a_graph_where_a_tensor_is_due": ("operator.arguments", "relu.default", [argument("self", as_graph={"name": "g", "graph": {"inputs": [], "outputs": [], "nodes": [], "tensor_values": {}, "sym_int_values": {}, "sym_bool_values": {}}})]),
    "a_size_where_a_tensor_is_due": ("graph.value", "relu.default", [argument("self", as_sym_int={"as_name": "linear"})]),
    "numbers_where_a_tensor_is_due": ("operator.arguments", "relu.default", [argument("self", as_ints=[1])]),
    "a_fraction_as_a_size": ("operator.arguments", "zeros.default", [argument("size", as_floats=[2.0])]),
}.items():  # fmt: skip
    change(_rule, _name, _node(f"aten.{_operator}", *_inputs))

change("operator.arguments", "a_condition_without_graphs", _target("torch.ops.higher_order.cond", inputs=[X]))
change("operator.loop", "a_loop_that_may_never_end", _target("torch.ops.higher_order.while_loop", inputs=[X]))
change(
    "operator.arguments",
    "a_function_of_sizes_with_three",
    _target("_operator.add", inputs=[argument("", as_int=1)] * 3),
)
change("operator.arguments", "a_function_of_sizes_of_a_tensor", _target("_operator.add", inputs=[X, X]))
change("operator.random", "random_numbers", _node("aten.rand_like.default", X))
change("operator.random", "random_bits", _node("aten.bernoulli.p", X))
change("operator.unwritten", "memory_of_somebody_else", _node("aten.empty.memory_format", X))
change("operator.version", "an_operator_that_torch_has_no_more", _node("aten.cholesky.default", X))
change(
    "operator.value",
    "a_loss_that_is_reduced_in_no_known_way",
    _node(
        "aten.soft_margin_loss.default",
        X,
        argument("target", as_tensor={"name": "linear"}),
        argument("reduction", as_int=4),
    ),
)
change(
    "operator.value",
    "a_mode_that_does_not_exist",
    _node(
        "aten.grid_sampler_3d.default",
        argument("input", as_tensor={"name": "linear"}),
        argument("grid", as_tensor={"name": "linear"}),
        argument("interpolation_mode", as_int=-3),
        argument("padding_mode", as_int=0),
        argument("align_corners", as_bool=True),
    ),
)
change(
    "name.value",
    "a_graph_with_a_name_that_is_code",
    _target(
        "torch.ops.higher_order.cond",
        inputs=[
            argument(
                "",
                as_graph={
                    "name": "g=print()",
                    "graph": {
                        "inputs": [],
                        "outputs": [],
                        "nodes": [],
                        "tensor_values": {},
                        "sym_int_values": {},
                        "sym_bool_values": {},
                    },
                },
            )
        ],
    ),
)

change(
    "operator.vmap",
    "an_unfinished_vmap",
    _target(
        "torch._functorch.predispatch._vmap_increment_nesting",
        inputs=[argument("", as_int=1), argument("", as_string="error")],
    ),
)


def _graph(given: dict[str, Any], nodes: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    tables = ("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values", "custom_obj_values")
    empty: dict[str, Any] = {table: {} for table in tables}
    graph_ = {"inputs": [given], "outputs": [result], "nodes": nodes, "is_single_tensor_return": False, **empty}
    return argument("", as_graph={"name": "g", "graph": graph_})


_WEIGHT = {"as_tensor": {"name": "p_first_bias"}}
_AS_NUMBER = {"as_sym_int": {"as_name": "number"}}
_MAXIMUM = {
    "target": "torch.sym_max",
    "inputs": [argument("a", **_AS_NUMBER), argument("b", as_int=0)],
    "outputs": [{"as_sym_int": {"as_name": "same"}}],
    "metadata": {},
}


def _write_to_a_number(document: Any, at: int) -> None:
    """The weight went through a number: whoever looks for writes to it looks in vain."""
    ones = [argument("self", as_sym_int={"as_name": "same"}), argument("other", as_int=1)]
    write = {"inputs": ones, "outputs": [{"as_tensor": {"name": "written"}}], "metadata": {}}
    graph(document)["nodes"].insert(at, {"target": "torch.ops.aten.add_.Scalar", **write})


@sample("graph.value")
def a_weight_that_a_wrapper_makes_a_number(out: Path, entries: Entries, marker: Path) -> Path:
    def alter(document: Any) -> None:
        wrapped = _graph(_AS_NUMBER, [_MAXIMUM], {"as_sym_int": {"as_name": "same"}})
        inputs = [argument("", as_bool=False), wrapped, argument("", **_WEIGHT)]
        node = {"target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "inputs": inputs, "metadata": {}}
        graph(document)["nodes"].insert(1, {**node, "outputs": [{"as_sym_int": {"as_name": "same"}}]})
        _write_to_a_number(document, 2)

    return ar.write(out, ar.altered(entries, alter))


@sample("graph.value")
def a_weight_that_a_branch_makes_a_number(out: Path, entries: Entries, marker: Path) -> Path:
    def alter(document: Any) -> None:
        inside = {"as_tensor": {"name": "inside"}}
        branches = [_graph(inside, [], inside), _graph(inside, [], inside)]
        operands = argument("", as_tensors=[_WEIGHT["as_tensor"]])
        inputs = [argument("", **_WEIGHT), *branches, operands]
        node = {"target": "torch.ops.higher_order.cond", "inputs": inputs, "metadata": {}}
        graph(document)["nodes"].insert(1, {**node, "outputs": [_AS_NUMBER]})
        graph(document)["nodes"].insert(2, _MAXIMUM)
        _write_to_a_number(document, 3)

    return ar.write(out, ar.altered(entries, alter))
