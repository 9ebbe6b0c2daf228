"""Tree specs: how the author's nested arguments and results map to flat lists. We keep the path of each leaf, nothing
else.

torch resolves the type names in a spec by importing them. Here a name is compared with a short list; any other type
is accepted only when its context is a plain list of string keys (a registered mapping such as a transformers model
output, or a registered dataclass), and then it is a dict to us: the name is never looked up. A named tuple is a dict of
the fields that the document lists for it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal

Path = tuple[str | int, ...]
Fields = Mapping[str, Sequence[str]]
"""Field names of named tuples, by the name under which the author registered each."""

MAX_DEPTH = 16
MAX_LEAVES = 8192
MAX_KEY = 128

_SEQUENCES = {
    "builtins.tuple",
    "builtins.list",
    "torch.fx.immutable_collections.immutable_list",
    "torch.Size",
}
_MAPPINGS = {
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_dict",
}
_NAMED_TUPLE = "collections.namedtuple"
_RETURN_TYPE = re.compile(r"torch\.return_types\.[a-z_]{1,40}\Z", re.ASCII)  # of torch.max(x, 1) and the like
_REFUSED = {"collections.defaultdict", "collections.deque"}


def named_tuples(module: dict[str, Any]) -> Fields:
    """The named tuples of a document. Raises Refusal ``tree.form``."""
    found: dict[str, list[str]] = {}
    for name, definition in module.get("treespec_namedtuple_fields", {}).items():
        found[name] = definition["field_names"]
        if len(name) > MAX_KEY or not all(0 < len(f) <= MAX_KEY and f.isidentifier() for f in found[name]):
            raise Refusal("tree.form", "fields of a named tuple")
    return found


def leaves(spec: str, fields: Fields) -> list[Path]:
    """Path of each leaf, in flat order: dict keys and sequence positions. Raises Refusal ``tree.*``."""
    document = strict_json.parse(spec.encode())
    if not isinstance(document, list) or len(document) != 2 or document[0] != 1:
        raise Refusal("tree.form", "only protocol 1")
    found: list[Path] = []
    _walk(document[1], (), found, fields)
    return found


def argument_leaves(spec: str, names: list[str] | None, fields: Fields) -> list[Path]:
    """Leaves of ``(args, kwargs)``, each path starting with the argument's name (``names``: the parameters of
    ``forward``).
    """
    found = leaves(spec, fields)
    positional = sorted({p[1] for p in found if len(p) > 1 and p[0] == 0}, key=str)
    named: list[Path] = []
    for path in found:
        if len(path) < 2:
            raise Refusal("tree.form", "arguments are a pair (args, kwargs)")
        first = path[1]
        if path[0] == 0 and isinstance(first, int):
            first = names[first] if names and first < len(names) and len(names) >= len(positional) else f"input_{first}"
        named.append((first, *path[2:]))
    if len(set(named)) != len(named):
        raise Refusal("tree.form", "two arguments have the same name")
    return named


def join(path: Path) -> str:
    """``logits``, ``aux.0``: how a leaf is named to clients."""
    return ".".join(str(step) for step in path)


def _walk(node: Any, path: Path, found: list[Path], fields: Fields) -> None:
    if not isinstance(node, dict) or set(node) != {"type", "context", "children_spec"} or len(path) > MAX_DEPTH:
        raise Refusal("tree.form", path)
    kind, context, children = node["type"], node["context"], node["children_spec"]
    if not isinstance(children, list) or len(found) > MAX_LEAVES or len(children) > MAX_LEAVES:
        raise Refusal("tree.form", path)
    if kind is None:
        if context is not None or children:
            raise Refusal("tree.form", path)
        found.append(path)
        return
    if not isinstance(kind, str) or len(kind) > MAX_KEY or kind in _REFUSED:
        raise Refusal("tree.type", kind)
    if kind in _SEQUENCES or _RETURN_TYPE.match(kind):
        if context not in (None, "null"):
            raise Refusal("tree.type", f"{kind} with context {context!r}")
        keys: list[str | int] = list(range(len(children)))
    else:
        keys = _keys(kind, context, len(children), fields)
    for key, child in zip(keys, children, strict=True):
        _walk(child, (*path, key), found, fields)


def _keys(kind: str, context: Any, count: int, fields: Fields) -> list[str | int]:
    keys: Any
    if kind == _NAMED_TUPLE:
        keys = list(fields.get(context, ())) if isinstance(context, str) else None
    else:
        keys = strict_json.parse(context.encode()) if isinstance(context, str) else None
    if kind not in _MAPPINGS and isinstance(keys, list) and [type(part) for part in keys] == [list, list]:
        keys = keys[0]  # a dataclass: the fields that are here, and those that are None
    allowed = (str, int) if kind in _MAPPINGS else (str,)
    plain = isinstance(keys, list) and all(type(k) in allowed and k != "" and len(str(k)) <= MAX_KEY for k in keys)
    if not plain:
        raise Refusal("tree.type", kind)
    assert isinstance(keys, list)
    if len(keys) != count or len({str(k) for k in keys}) != count or not all(str(k).isprintable() for k in keys):
        raise Refusal("tree.form", f"keys of a {kind}")
    return keys
