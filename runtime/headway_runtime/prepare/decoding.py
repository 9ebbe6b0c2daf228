"""Does a program keep the contract of ``decoder``, and what does its cache look like? Asked of prepared documents; no
torch.

What the operator is given decides where keys and values of one user are written and whose are read. So its metadata
must be the program's own inputs as they came, and nothing else in the graph may look at them. What the cache holds is
derived from the calls, and from no metadata of the file; the kernels check every slot, block, length and shape anyway.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway_runtime.prepare.beside import generation
from headway_runtime.prepare.decoder import (
    ATTENTION,
    CONTRACT,
    INPUTS,
    METADATA,
    TASK,
    DecoderFacts,
    DecoderGeometry,
    LayerGeometry,
)
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import dimensions
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.translate.graph import references

MAX_LAYERS = 1024
MAX_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_VOCABULARY = 1 << 22
MAX_WINDOW = (1 << 31) - 1
MAX_NUMBER = 3.4e38
"""Of scale and softcap: what float32 holds. The kernels refuse more of both and of a window (`kernels.checks`)."""

FAR = 1 << 24
"""A size at which conditions without an upper bound are tried."""

OUTPUT = "logits"
ELEMENTS = ("float32", "bfloat16", "float16")
DIMENSIONS = (("token_ids", 0, "tokens"), ("block_tables", 0, "sequences"), ("block_tables", 1, "blocks"),
              ("logits_idx", 0, "logits"))  # fmt: skip
"""What the sizes of a decoder are called where its record says nothing."""

_ARGUMENTS = ("q", "k", "v", *METADATA, "layer", "scale", "window", "softcap")
_SIZE_OF = "aten.sym_size.int"
_COMPARISONS = {"eq", "lt", "le", "gt", "ge"}

Document = Mapping[str, Any]
Operands = Mapping[str, Mapping[str, Mapping[str, Any]]]


def is_decoder(document: Document) -> bool:
    """Whether a prepared program generates text."""
    return "decoder" in document


def read(document: Document) -> tuple[DecoderGeometry, DecoderFacts]:
    """What a checked decoder's document says. Raises KeyError for a program that is none."""
    found = document["decoder"]
    layers = tuple(
        LayerGeometry(item["layer"], item["heads"], item["kvHeads"], item["headDim"], item["window"])
        for item in found["layers"]
    )
    return DecoderGeometry(layers, found["vocabulary"]), generation.parse(document["generation"])


def check(document: dict[str, Any], operands: Operands, *, tokenizer: bool) -> None:
    """Hold a program that calls the operator, or whose record says that it generates text, against the contract, and
    enter ``decoder`` into its document. ``operands`` are those of ``translate.program.Draft``.

    Raises Refusal ``decoder.*`` or ``record.generation``. Any other program is left as it is.
    """
    calls = [node for node in document["nodes"] if node["op"] == ATTENTION]
    hidden = any(node["op"] == ATTENTION for branch in _branches(document["nodes"]) for node in branch)
    meant = document.get("facts", {}).get("task") == TASK or "generation" in document
    if not calls and not hidden and not meant:
        return
    if hidden:
        raise Refusal("decoder.place", "it is called in a branch or a loop")
    _check_record(document, tokenizer=tokenizer)
    _check_inputs(document["inputs"])
    vocabulary = _check_output(document)
    _check_sizes(document)
    _check_writes(document)
    values = {item["name"]: item["value"] for item in document["inputs"]}
    _check_metadata(document["nodes"], values)
    layers = sorted((_layer(call, values, operands.get(call["out"], {}), document) for call in calls), key=_number)
    if [layer.layer for layer in layers] != list(range(len(layers))) or not 1 <= len(layers) <= MAX_LAYERS:
        numbers = [layer.layer for layer in layers][:8]
        raise Refusal("decoder.layers", f"{len(layers)} calls, numbered {numbers}; 1 to {MAX_LAYERS} are read")
    document["decoder"] = {
        "layers": [
            {
                "layer": layer.layer,
                "heads": layer.heads,
                "kvHeads": layer.kv_heads,
                "headDim": layer.head_dim,
                "window": layer.window,
            }
            for layer in layers
        ],
        "vocabulary": vocabulary,
    }
    try:
        generation.check(generation.parse(document["generation"]), vocabulary)
    except Refusal as refusal:
        raise refusal.inside("generation") from None
    document["guards"] = []  # each holds at every size, as do those that a hand would write down from the contract
    for bounds in document["symbols"].values():
        bounds["min"] = 1
    if not document["dimensions"]:
        document["dimensions"] = [list(dimension) for dimension in DIMENSIONS]


def _number(layer: LayerGeometry) -> int:
    return layer.layer


def _branches(nodes: Sequence[Document]) -> Iterator[Sequence[Document]]:
    for node in nodes:
        for branch in node.get("branches", ()):
            yield branch["nodes"]
            yield from _branches(branch["nodes"])


def _check_record(document: Document, *, tokenizer: bool) -> None:
    if "generation" not in document:
        raise Refusal("record.generation", "the record has no field generation")
    if document["facts"].get("task") != TASK:
        raise Refusal("record.generation", f"the record's task is {document['facts'].get('task')!r}, not {TASK!r}")
    if "steps" in document:
        raise Refusal("record.generation", "a program that generates text has no steps of a request").inside("steps")
    if not tokenizer:
        raise Refusal("record.generation", "the archive holds no extra/tokenizer.json")


def _check_inputs(inputs: Sequence[Document]) -> None:
    """Names, element types and axes; sizes that have one letter in the contract are one symbol, others differ."""
    found = {item["name"]: item for item in inputs}
    wanted = [name for name, _, _ in INPUTS]
    if sorted(found) != sorted(wanted):
        raise _broken(f"the inputs are {', '.join(found)[:120]}, and must be {', '.join(wanted)}")
    sizes: dict[str, str] = {}
    for name, dtype, axes in INPUTS:
        item = found[name]
        shape = [ex.from_json(size) for size in item["shape"]]
        if item["dtype"] != dtype or len(shape) != len(axes):
            raise _broken(f"{name} is {item['dtype']} with {len(shape)} axes, and must be {dtype} with {len(axes)}")
        for axis, size in zip(axes, shape, strict=True):
            letter = axis.removesuffix("+1")
            offset = 1 if letter != axis else 0
            if len(size.symbols()) != 1 or dimensions.line(size) != (1, offset):
                raise _broken(f"an axis of {name} is {size}, and must be a dynamic size{' and one' * offset}")
            (symbol,) = size.symbols()
            if sizes.setdefault(letter, symbol) != symbol:
                raise _broken(f"an axis of {name} must be the same size as that of the other inputs ({letter})")
    if len(set(sizes.values())) != len(sizes):
        raise _broken("two of the sizes T, B, M and L are one; each needs a torch.export.Dim of its own")


def _check_output(document: Document) -> int:
    """The vocabulary: the last axis of ``logits`` [L, V]."""
    outputs = document["outputs"]
    if len(outputs) != 1 or outputs[0]["name"] != OUTPUT or outputs[0]["dtype"] != "float32":
        found = ", ".join(f"{o['name']} ({o['dtype']})" for o in outputs)[:120]
        raise _broken(f"the outputs are {found}, and must be {OUTPUT} (float32)")
    rows = next(item["shape"][0] for item in document["inputs"] if item["name"] == "logits_idx")
    shape = outputs[0]["shape"]
    if len(shape) != 2 or shape[0] != rows or type(shape[1]) is not int or not 2 <= shape[1] <= MAX_VOCABULARY:
        raise _broken(
            f"{OUTPUT} must have a row for each of logits_idx and a column for each token, 2 to {MAX_VOCABULARY:,}"
        )
    return shape[1]


def _check_sizes(document: Document) -> None:
    """Every size from 1 on, up to a bound of its own. A decoder that answers for some lengths only could not be asked
    about a token more.
    """
    ranges = document["symbols"]
    for item in document["inputs"]:
        for symbol in {s for size in item["shape"] for s in ex.from_json(size).symbols()}:
            if ranges[symbol]["min"] > 2:  # 2 is what export writes of a size that it made dynamic by itself
                raise _broken(f"a size of {item['name']} begins at {ranges[symbol]['min']}, and must at 1")
    for guard in map(ex.from_json, document["guards"]):
        if not _always(guard, ranges):
            raise _broken(f"it holds only when {guard}")


def _always(guard: ex.Expr, ranges: Mapping[str, Mapping[str, int | None]]) -> bool:
    """Whether a comparison of two straight lines over one size holds at both of its ends, and so in between."""
    if guard.operator not in _COMPARISONS or len(guard.symbols()) != 1:
        return False
    if any(side.symbols() and dimensions.line(side) is None for side in guard.args):
        return False
    (symbol,) = guard.symbols()
    high = ranges[symbol]["max"]
    return all(ex.evaluate(guard, {symbol: size}) for size in (1, FAR if high is None else high))


def _check_writes(document: Document) -> None:
    names = [item["name"] for item in (*document["inputs"], *document["weights"]) if item["written"]]
    if names:
        raise _broken(f"it writes to {names[0]}")


def _check_metadata(nodes: Sequence[Document], values: Mapping[str, str]) -> None:
    """Block tables, lengths and slots go to the operator, and nowhere else: what they say of is other users' memory."""
    own = {values[name]: name for name in METADATA}
    for node in nodes:
        if node["op"] not in (ATTENTION, _SIZE_OF):
            used = references([node["args"], list(node["kwargs"].values())])
            if found := next((own[value] for value in used if value in own), None):
                raise Refusal("decoder.metadata", f"{node['op']} takes {found}")


def _layer(
    call: Document, values: Mapping[str, str], operands: Mapping[str, Mapping[str, Any]], document: Document
) -> LayerGeometry:
    """One call of the operator. Raises Refusal ``decoder.metadata`` or ``decoder.layers``."""
    given = {**dict(zip(_ARGUMENTS, call["args"], strict=False)), **call["kwargs"]}
    for name in METADATA:
        if given[name] != {"v": values[name]}:
            raise Refusal("decoder.metadata", f"{name} of a call is not the program's input {name}")
    layer, window = given["layer"], given["window"]
    if (
        type(layer) is not int
        or not 0 <= layer < MAX_LAYERS
        or type(window) is not int
        or not 0 <= window <= MAX_WINDOW
    ):
        raise Refusal("decoder.layers", f"layer {layer} with a window of {window}")
    for name in ("scale", "softcap"):
        value = given[name]
        if type(value) not in (int, float) or not abs(value) <= MAX_NUMBER or (name == "softcap" and value < 0):
            raise Refusal("decoder.layers", f"layer {layer} has {name} = {value}")
    tokens = next(item["shape"][0] for item in document["inputs"] if item["name"] == "token_ids")
    shapes = [operands.get(name, {}).get("shape", []) for name in ("q", "k", "v")]
    kinds = {operands.get(name, {}).get("dtype") for name in ("q", "k", "v")}
    plain = all(len(s) == 3 and s[0] == tokens and type(s[1]) is type(s[2]) is int for s in shapes)
    if not plain or len(kinds) != 1 or not kinds <= set(ELEMENTS):
        raise Refusal(
            "decoder.layers",
            f"layer {layer} has queries, keys and values of {_shown(operands)}; needed is [T, heads, head_dim] of one "
            f"element type of {', '.join(ELEMENTS)}",
        )
    (_, heads, size), keys, valued = shapes
    if keys != valued or keys[2] != size or not 1 <= size <= MAX_HEAD_DIM or not 1 <= heads <= MAX_HEADS:
        raise Refusal("decoder.layers", f"layer {layer} has heads of {_shown(operands)}")
    if not 1 <= keys[1] <= heads or heads % keys[1]:
        raise Refusal("decoder.layers", f"layer {layer} has {heads} heads of queries for {keys[1]} of keys")
    return LayerGeometry(layer, heads, keys[1], size, window)


def _shown(operands: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{o['dtype']} {[str(ex.from_json(n)) for n in o['shape']]}" for o in operands.values())[:160]


def _broken(detail: str) -> Refusal:
    return Refusal("decoder.contract", f"{detail} ({CONTRACT})")
