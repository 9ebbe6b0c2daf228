"""Which whole numbers an input may hold: as many as the table has rows that they index.

Read from the prepared document: an input is followed through operators that keep its values (or add a constant) to an
embedding, or to another look-up in a weight. Pure: no tensors.
"""

from collections.abc import Iterator, Mapping
from typing import Any

KEEP = frozenset(
    f"aten.{name}"
    for name in (
        "_to_copy.default",
        "alias.default",
        "clone.default",
        "contiguous.default",
        "detach.default",
        "expand.default",
        "expand_as.default",
        "flatten.using_ints",
        "lift_fresh_copy.default",
        "narrow.default",
        "permute.default",
        "repeat.default",
        "reshape.default",
        "select.int",
        "slice.Tensor",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "t.default",
        "to.device",
        "to.dtype",
        "to.dtype_layout",
        "to.other",
        "transpose.int",
        "unsqueeze.default",
        "view.default",
        "_unsafe_view.default",
    )
)
SHIFT = {"aten.add.Tensor": 1, "aten.add.Scalar": 1, "aten.sub.Tensor": -1, "aten.sub.Scalar": -1}
LOOKUPS = {"aten.embedding": (0, 1), "aten.embedding_bag": (0, 1), "aten._embedding_bag": (0, 1)}
LOOKUPS |= {"aten._embedding_bag_forward_only": (0, 1), "aten.index_select": (0, 2)}
"""Operator -> positions of the table, of which rows are taken, and of the row numbers."""


def id_bounds(document: Mapping[str, Any]) -> dict[str, int]:
    """Input name -> smallest number of rows of any table that its numbers index; 1 at least. Inputs that index no table
    are not in it.
    """
    names = {item["value"]: item["name"] for item in document["inputs"]}
    rows = {item["value"]: item["shape"][0] for item in document["weights"] if item["shape"]}
    roots: dict[str, tuple[str, int]] = {value: (value, 0) for value in (*names, *rows)}
    bounds: dict[str, int] = {}
    for node in document["nodes"]:
        if (root := _kept(node, roots)) is not None:
            roots[node["out"]] = root
        for table, indices in _lookups(node):
            source, shift = roots.get(indices, ("", 0))
            size = rows.get(roots.get(table, ("", 0))[0])
            if source in names and size is not None:
                name = names[source]
                bounds[name] = max(1, min(size - shift, bounds.get(name, size - shift)))
    return bounds


def _kept(node: Mapping[str, Any], roots: Mapping[str, tuple[str, int]]) -> tuple[str, int] | None:
    """The input or weight whose values the node hands on, and what was added to them."""
    first = _value(node["args"][0]) if node["args"] else None
    if first is None or first not in roots or not isinstance(node["out"], str):
        return None
    root, shift = roots[first]
    if node["op"] in KEEP:
        return root, shift
    if node["op"] in SHIFT and len(node["args"]) > 1 and type(node["args"][1]) is int and not node["kwargs"]:
        return root, shift + SHIFT[node["op"]] * node["args"][1]
    return None


def _lookups(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(table, row numbers) of a node that takes rows of a table."""
    args = node["args"]
    places = LOOKUPS.get(node["op"].rpartition(".")[0])
    if places is not None and len(args) > max(places):
        table, indices = _value(args[places[0]]), _value(args[places[1]])
    elif node["op"] == "aten.index.Tensor" and len(args) > 1 and isinstance(args[1], list) and len(args[1]) == 1:
        table, indices = _value(args[0]), _value(args[1][0])
    else:
        return
    if table is not None and indices is not None:
        yield table, indices


def _value(argument: Any) -> str | None:
    """The name of the value that an argument is; None for a literal."""
    return argument["v"] if isinstance(argument, dict) and "v" in argument else None
