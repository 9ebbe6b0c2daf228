"""Decoders: what an operator that writes to a cache must not be told, and what a record must not say of it.

Made from an honest decoder (`tests.decoders`), each altered in one place.
"""

import copy
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, Entries
from tests.hostile.samples.registry import add, argument, graph

RECORD = "extra/headway.json"
_CALL = "torch.ops.headway.paged_attention.default"
Alter = Callable[[Any], Any]


@cache
def honest_decoder() -> Entries:
    """The entries of an honest decoder."""
    from tests.decoders import tiny

    with tempfile.TemporaryDirectory() as folder:
        return ar.read(tiny(Path(folder)))


def _changed(rule: str, name: str, alter: Alter, record: str = MODEL) -> None:
    add(rule, name, lambda out, entries, marker: ar.write(out, ar.altered(honest_decoder(), alter, record)))


def _unnamed(rule: str, name: str, alter: Alter) -> None:
    """A sample whose record names no sizes, which would be the first to be missed."""

    def build(out: Path, entries: Entries, marker: Path) -> Path:
        unnamed = ar.altered(honest_decoder(), lambda record: record.pop("dimensions") and None, RECORD)
        return ar.write(out, ar.altered(unnamed, alter))

    add(rule, name, build)


def _calls(document: Any) -> list[Any]:
    return [node for node in graph(document)["nodes"] if node["target"] == _CALL]


def _given(name: str, number: int = 0, **member: Any) -> Alter:
    """Another argument in one call."""

    def alter(document: Any) -> None:
        next(i for i in _calls(document)[number]["inputs"] if i["name"] == name)["arg"] = member

    return alter


def _node(target: str, out: str, *inputs: Any, **output: Any) -> dict[str, Any]:
    return {
        "target": f"torch.ops.{target}",
        "inputs": list(inputs),
        "outputs": [output or {"as_tensor": {"name": out}}],
        "metadata": {},
    }


def _before(document: Any, node: Any, like: str, name: str) -> None:
    """A node at the beginning of the graph, whose result is described as another tensor is."""
    tensors = graph(document)["tensor_values"]
    tensors[name] = copy.deepcopy(tensors[like])
    graph(document)["nodes"].insert(0, node)


# Whose memory is read and written


def _computed(name: str) -> Alter:
    """A metadata argument that the program computes from its input."""

    def alter(document: Any) -> None:
        node = _node(
            "aten.add.Tensor",
            "mine",
            argument("self", as_tensor={"name": name}),
            argument("other", as_tensor={"name": name}),
        )
        _before(document, node, name, "mine")
        _given(name, as_tensor={"name": "mine"})(document)

    return alter


for _name in ("block_tables", "seq_lens", "query_start_loc", "slot_mapping"):
    _changed("decoder.metadata", f"{_name}_that_the_program_computes", _computed(_name))

_changed("decoder.metadata", "slots_that_are_positions", _given("slot_mapping", as_tensor={"name": "positions"}))
_changed("decoder.metadata", "lengths_that_are_starts", _given("seq_lens", as_tensor={"name": "query_start_loc"}))
_changed("decoder.metadata", "a_number_for_all_slots", _given("slot_mapping", as_int=16))


def _written_before(document: Any) -> None:
    """The slots are moved by a block, in place, before they are handed on."""
    node = _node(
        "aten.add_.Scalar", "moved", argument("self", as_tensor={"name": "slot_mapping"}), argument("other", as_int=16)
    )
    _before(document, node, "slot_mapping", "moved")


_changed("decoder.contract", "slots_that_are_moved_in_place", _written_before)


def _looked_at(document: Any) -> None:
    """The tokens depend on the blocks that the cache happened to give."""
    node = _node(
        "aten.add.Tensor",
        "seen",
        argument("self", as_tensor={"name": "token_ids"}),
        argument("other", as_tensor={"name": "slot_mapping"}),
    )
    _before(document, node, "token_ids", "seen")
    embedding = next(n for n in graph(document)["nodes"] if n["target"].endswith("embedding.default"))
    embedding["inputs"][1]["arg"]["as_tensor"]["name"] = "seen"


_changed("decoder.metadata", "tokens_that_depend_on_slots", _looked_at)


# What the cache can have

_changed("decoder.layers", "a_layer_twice", _given("layer", as_int=1))
_changed("decoder.layers", "a_layer_that_is_left_out", _given("layer", 1, as_int=2))
_changed("decoder.layers", "a_layer_beyond_all", _given("layer", as_int=1 << 30))
_changed("decoder.layers", "a_layer_before_the_first", _given("layer", as_int=-1))
_changed("decoder.layers", "a_window_below_nothing", _given("window", as_int=-1))
_changed("decoder.layers", "a_scale_without_end", _given("scale", as_float="Infinity"))
_changed("decoder.layers", "a_scale_that_is_no_number", _given("scale", as_float="NaN"))
_changed("decoder.layers", "a_cap_below_nothing", _given("softcap", as_float=-1.0))
_changed("decoder.layers", "a_query_that_is_a_number", _given("q", as_float=1.0))
_changed("decoder.layers", "a_window_beyond_the_kernels", _given("window", as_int=1 << 31))
_changed("decoder.layers", "a_scale_beyond_the_kernels", _given("scale", as_float=1e39))
_changed("decoder.layers", "a_cap_beyond_the_kernels", _given("softcap", as_float=1e300))
_changed("operator.value", "a_window_beyond_counting", _given("window", as_int=1 << 40))
_changed("operator.arguments", "attention_without_slots", lambda d: _calls(d)[0]["inputs"].pop(6) and None)


def _symbolic_layer(document: Any) -> None:
    """Which layer it is depends on how many tokens there are."""
    size = next(n for n in graph(document)["nodes"] if n["target"] == "torch.ops.aten.sym_size.int")
    _given("layer", as_sym_int=size["outputs"][0]["as_sym_int"])(document)


_changed("decoder.layers", "a_layer_that_a_size_decides", _symbolic_layer)


def _described(which: str, axis: int, size: int) -> Alter:
    """What the file says of a tensor that attention takes."""

    def alter(document: Any) -> None:
        name = next(i for i in _calls(document)[0]["inputs"] if i["name"] == which)["arg"]["as_tensor"]["name"]
        graph(document)["tensor_values"][name]["sizes"][axis] = {"as_int": size}

    return alter


def _all(*alters: Alter) -> Alter:
    def alter(document: Any) -> None:
        for one in alters:
            one(document)

    return alter


_changed("decoder.layers", "heads_that_keys_do_not_divide", _all(_described("k", 1, 3), _described("v", 1, 3)))
_changed("decoder.layers", "no_heads_of_keys", _all(_described("k", 1, 0), _described("v", 1, 0)))
_changed("decoder.layers", "more_heads_than_are_read", _described("q", 1, 1 << 20))
_changed("decoder.layers", "heads_wider_than_are_read", _all(*(_described(name, 2, 1 << 20) for name in "qkv")))
_changed("decoder.layers", "keys_and_values_of_other_widths", _described("v", 2, 8))
_changed("decoder.layers", "a_fixed_number_of_tokens", _described("q", 0, 12))


def _undescribed(document: Any) -> None:
    name = next(i for i in _calls(document)[0]["inputs"] if i["name"] == "q")["arg"]["as_tensor"]["name"]
    del graph(document)["tensor_values"][name]


_changed("graph.signature", "queries_of_which_nothing_is_said", _undescribed)


# Where it is called


def _in_a_branch(document: Any) -> None:
    """A branch that writes to the cache only for some requests."""
    call = copy.deepcopy(_calls(document)[0])
    operands = [i["arg"] for i in call["inputs"] if "as_tensor" in i["arg"]]
    call["inputs"][7]["arg"] = {"as_int": 2}
    call["outputs"] = [{"as_tensor": {"name": "inner"}}]
    tensors = graph(document)["tensor_values"]
    inner = {operand["as_tensor"]["name"]: tensors[operand["as_tensor"]["name"]] for operand in operands}
    body = {
        "inputs": operands,
        "outputs": [{"as_tensor": {"name": "inner"}}],
        "nodes": [call],
        "tensor_values": {**inner, "inner": tensors[_calls(document)[0]["outputs"][0]["as_tensor"]["name"]]},
        "sym_int_values": {},
        "sym_bool_values": {},
        "sym_float_values": {},
        "custom_obj_values": {},
        "is_single_tensor_return": False,
    }
    branch = {"as_graph": {"name": "branch", "graph": body}}
    cond = _node(
        "higher_order.cond",
        "chosen",
        argument("pred", as_tensor={"name": "token_ids"}),
        argument("true_fn", **branch),
        argument("false_fn", **copy.deepcopy(branch)),
        argument("operands", as_tensors=[operand["as_tensor"] for operand in operands]),
    )
    tensors["chosen"] = copy.deepcopy(tensors[_calls(document)[1]["outputs"][0]["as_tensor"]["name"]])
    nodes = graph(document)["nodes"]
    last = nodes.index(_calls(document)[0])
    nodes.insert(last + 1, cond)


# What a decoder must be


_changed("decoder.contract", "an_input_by_another_name", lambda d: _renamed_argument(d, "positions", "places"))


def _renamed_argument(document: Any, old: str, new: str) -> Any:
    spec = document["graph_module"]["module_call_graph"][0]["signature"]
    spec["in_spec"] = spec["in_spec"].replace(old, new)
    spec["forward_arg_names"] = [new if name == old else name for name in spec.get("forward_arg_names") or ()]
    document["guards_code"] = [guard.replace(f"['{old}']", f"['{new}']") for guard in document["guards_code"]]
    return document


def _typed(name: str, dtype: int) -> Alter:
    return lambda document: graph(document)["tensor_values"][name].update(dtype=dtype)


_changed("decoder.contract", "slots_of_32_bits", _typed("slot_mapping", 4))
_unnamed(
    "decoder.contract",
    "tokens_of_a_fixed_number",
    lambda d: graph(d)["tensor_values"]["token_ids"].update(sizes=[{"as_int": 12}]),
)
_unnamed(
    "decoder.contract",
    "starts_that_are_as_many_as_sequences",
    lambda d: graph(d)["tensor_values"]["query_start_loc"].update(sizes=graph(d)["tensor_values"]["seq_lens"]["sizes"]),
)
_unnamed(
    "decoder.contract",
    "as_many_logits_as_tokens",
    lambda d: graph(d)["tensor_values"]["logits_idx"].update(sizes=graph(d)["tensor_values"]["token_ids"]["sizes"]),
)


def _output(document: Any) -> Any:
    return graph(document)["tensor_values"][graph(document)["outputs"][0]["as_tensor"]["name"]]


_changed("decoder.contract", "logits_of_half_the_bytes", lambda d: _output(d).update(dtype=13))
_changed(
    "decoder.contract", "logits_without_a_row_for_each", lambda d: _output(d)["sizes"].__setitem__(0, {"as_int": 2})
)
_changed(
    "decoder.contract",
    "a_vocabulary_of_every_size",
    lambda d: _output(d)["sizes"].__setitem__(1, _output(d)["sizes"][0]),
)


def _ranges(document: Any, **limits: Any) -> None:
    for found in document["range_constraints"].values():
        found.update(limits)


_changed("decoder.contract", "steps_of_eight_tokens_at_least", lambda d: _ranges(d, min_val=8))


def _divisible(document: Any) -> None:
    document["guards_code"].append("L['token_ids'].size()[0] % 8 == 0")


def _coupled(document: Any) -> None:
    document["guards_code"].append("L['token_ids'].size()[0] >= 2 * L['seq_lens'].size()[0]")


_changed("decoder.contract", "lengths_in_steps_of_eight", _divisible)
_changed("decoder.contract", "two_tokens_for_each_sequence", _coupled)


# What the record says

_changed("record.generation", "a_decoder_of_which_nothing_is_said", lambda r: r.pop("generation") and None, RECORD)
_changed("record.generation", "a_decoder_without_a_task", lambda r: r.pop("task") and None, RECORD)
_changed("record.generation", "a_decoder_of_another_task", lambda r: r.update(task="chat"), RECORD)
_changed("record.generation", "an_end_beyond_the_vocabulary", lambda r: r["generation"].update(end=[384]), RECORD)
_changed(
    "record.generation",
    "a_prompt_beyond_the_vocabulary",
    lambda r: r["generation"]["golden"][0]["prompt"].append(1 << 30),
    RECORD,
)
_changed("record.form", "a_token_beyond_counting", lambda r: r["generation"].update(end=[1 << 40]), RECORD)
_changed("record.form", "a_context_without_end", lambda r: r["generation"].update(context=1 << 40), RECORD)
_changed(
    "record.form", "a_template_of_a_megabyte", lambda r: r["generation"].update(chatTemplate="x" * (1 << 20)), RECORD
)
_changed(
    "record.form",
    "a_template_that_is_code_of_python",
    lambda r: r["generation"].update(chatTemplate={"py": "x"}),
    RECORD,
)
_changed("record.form", "a_hook_of_sampling", lambda r: r["generation"].update(processor="os.system"), RECORD)
_changed(
    "record.generation", "a_decoder_that_is_a_step_of_itself", lambda r: r.update(steps={"preprocess": "model"}), RECORD
)
add(
    "record.generation",
    "a_decoder_without_a_tokenizer",
    lambda out, entries, marker: ar.write(
        out, {name: data for name, data in honest_decoder().items() if name != "extra/tokenizer.json"}
    ),
)
add(
    "record.generation",
    "a_decoder_without_a_record",
    lambda out, entries, marker: ar.write(
        out, {name: data for name, data in honest_decoder().items() if name != RECORD}
    ),
)
add(
    "decoder.contract",
    "a_program_without_attention_that_is_to_generate",
    lambda out, entries, marker: ar.write(
        out,
        {
            **entries,
            RECORD: json.dumps({"version": 1, "task": "generate", "generation": {"context": 64}}).encode(),
            "extra/tokenizer.json": b"{}",
        },
    ),
)
_changed("decoder.place", "attention_in_a_branch", _in_a_branch)
