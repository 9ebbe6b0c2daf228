"""The graph: its values, and what the signature says of them."""

# a table: one sample a line

from collections.abc import Callable
from typing import Any

from tests.hostile.samples.registry import argument, change, graph, sizes

X = argument("self", as_tensor={"name": "linear"})

change(
    "graph.value",
    "a_result_of_another_kind",
    lambda d: graph(d)["nodes"][1].update(outputs=[{"as_sym_int": {"as_name": "n"}}]),
)
change("graph.value", "a_result_that_is_a_constant", lambda d: graph(d)["nodes"][1].update(outputs=[{"as_int": 1}]))
change(
    "graph.value",
    "results_where_there_is_one",
    lambda d: graph(d)["nodes"][1].update(outputs=[{"as_tensors": [{"name": "a"}]}]),
)
change(
    "graph.value",
    "a_value_that_hides_an_input",
    lambda d: graph(d)["nodes"][0].update(outputs=[{"as_tensor": {"name": "x"}}]),
)


def _output_from_nowhere(d: Any) -> None:
    graph(d)["outputs"][0]["as_tensor"].update(name="p_ghost")
    d["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"]["as_tensor"].update(name="p_ghost")
    graph(d)["tensor_values"].update(p_ghost=graph(d)["tensor_values"]["x"])


def _unknown_buffer(d: Any) -> None:
    spec = {"buffer_mutation": {"arg": {"name": "linear"}, "buffer_name": "ghost"}}
    d["graph_module"]["signature"]["output_specs"].insert(0, spec)
    graph(d)["outputs"].insert(0, {"as_tensor": {"name": "linear"}})


change("graph.value", "an_output_from_nowhere", _output_from_nowhere)
change("graph.signature", "a_write_to_a_buffer_that_is_not_there", _unknown_buffer)
change(
    "graph.signature",
    "an_output_that_the_signature_calls_otherwise",
    lambda d: d["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"]["as_tensor"].update(name="x"),
)
change(
    "graph.signature",
    "an_input_that_the_signature_calls_otherwise",
    lambda d: d["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"]["as_tensor"].update(
        name="p_first_bias"
    ),
)
change("graph.signature", "an_input_without_a_description", lambda d: graph(d)["tensor_values"].pop("x") and None)
change(
    "graph.size",
    "a_hundred_thousand_operations",
    lambda d: graph(d).update(
        nodes=[
            {
                "target": "torch.ops.aten.relu.default",
                "inputs": [argument("self", as_tensor={"name": "x"})],
                "outputs": [{"as_none": True}],
                "metadata": {},
            }
        ]
        * 100_001
    ),
)
change(
    "tensor.shape", "a_value_of_a_negative_size", lambda d: graph(d)["tensor_values"]["x"].update(sizes=sizes(-1, 16))
)
change(
    "tensor.shape",
    "a_value_of_a_quadrillion_elements",
    lambda d: graph(d)["tensor_values"]["x"].update(sizes=sizes(1 << 25, 1 << 25)),
)
change("tensor.protocol", "an_input_of_complex_numbers", lambda d: graph(d)["tensor_values"]["x"].update(dtype=10))
change(
    "input.kind",
    "an_input_that_is_a_size",
    lambda d: d["graph_module"]["signature"]["input_specs"][-1].update(
        user_input={"arg": {"as_sym_int": {"as_name": "x"}}}
    ),
)


def _write_of(kind: str, **names: str) -> Callable[[Any], None]:
    """A write that the signature speaks of, of a value that is there."""

    def alter(d: Any) -> None:
        spec = {kind: {"arg": {"name": "linear"}, **names}}
        d["graph_module"]["signature"]["output_specs"].insert(0, spec)
        graph(d)["outputs"].insert(0, {"as_tensor": {"name": "relu"}})

    return alter


change(
    "graph.signature",
    "a_write_of_another_value_than_the_graph_s",
    _write_of("user_input_mutation", user_input_name="x"),
)
change("schema.value", "an_argument_of_an_unknown_kind", lambda d: graph(d)["nodes"][1]["inputs"][0].update(kind=7))
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
