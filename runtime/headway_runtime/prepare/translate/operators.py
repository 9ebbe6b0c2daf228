"""The operators a program may use: overloads with their exact signatures, for the torch this release pins.

The list is data (``operators_2_15.txt``: one schema a line, as torch prints it), derived by rule and reviewed; the
script and the reason for every family left out are in ``tests/hostile/derive_operators.py``. What is not on the list
is refused.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from headway_runtime.prepare import decoder

TORCH = "2.15"
_FILE = "operators_2_15.txt"

# Operators of the versions whose programs are read that this torch has no more (no listed schema differs between them).
GONE: dict[str, str] = {"aten.cholesky.default": "2.13", "aten.qr.default": "2.13"}

# Headway's own operators. What they must be called with, and in which programs, is asked by ``prepare.decoding``.
OWN: dict[str, str] = {decoder.ATTENTION: decoder.SCHEMA}

# Plain Python functions on sizes that torch writes into a graph.
SCALAR_FUNCTIONS: dict[str, int] = {
    "_operator.add": 2,
    "_operator.sub": 2,
    "_operator.mul": 2,
    "_operator.floordiv": 2,
    "_operator.truediv": 2,
    "_operator.mod": 2,
    "_operator.pow": 2,
    "_operator.neg": 1,
    "_operator.eq": 2,
    "_operator.ne": 2,
    "_operator.lt": 2,
    "_operator.le": 2,
    "_operator.gt": 2,
    "_operator.ge": 2,
    "_operator.and_": 2,
    "_operator.or_": 2,
    "math.trunc": 1,
    "math.floor": 1,
    "math.ceil": 1,
    "torch.sym_int": 1,
    "torch.sym_float": 1,
    "torch.sym_max": 2,
    "torch.sym_min": 2,
    "torch.sym_not": 1,
    "torch.sym_ite": 3,
}

_PREFIX = "torch.ops."
_SCHEMA = re.compile(
    r"(?P<space>\w+)::(?P<name>\w+)(\.(?P<overload>\w+))?\((?P<args>.*)\) -> (?P<returns>.*)\Z", re.ASCII
)
_ALIAS = re.compile(r"\((?P<set>[a-z|]+)(?P<write>!?)( -> \*)?\)")

# Composite operators whose schema promises no alias, but which hand back an input (or a view of it) in some cases.
_COMPOSITE = """
    atleast_1d.default atleast_1d.Sequence atleast_2d.default atleast_2d.Sequence atleast_3d.default
    atleast_3d.Sequence broadcast_tensors.default meshgrid.default meshgrid.indexing cartesian_prod.default
    type_as.default dropout.default einsum.default unsafe_chunk.default unsafe_split.Tensor
    unsafe_split_with_sizes.default _unsafe_view.default pad.default pixel_shuffle.default pixel_unshuffle.default
    channel_shuffle.default native_channel_shuffle.default sum_to_size.default chain_matmul.default
    linalg_multi_dot.default diag.default diagflat.default conj_physical.default real.default imag.default
    tile.default expand_as.default _conj.default _neg_view.default lift_fresh.default matrix_power.default
    linalg_matrix_power.default tensordot.default concat.default concatenate.default feature_dropout.default
    alpha_dropout.default feature_alpha_dropout.default
"""
MAYBE_ALIAS = frozenset(f"aten.{name}" for name in _COMPOSITE.split())


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument. ``type`` is torch's, without alias marks (``Tensor?``, ``SymInt[2]``, ``Scalar``)."""

    name: str
    type: str
    required: bool
    keyword_only: bool
    alias: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator overload. ``returns`` are (type, alias set) pairs; an alias set names the arguments it shares
    memory with.
    """

    name: str
    parameters: tuple[Parameter, ...]
    returns: tuple[tuple[str, str], ...]

    @property
    def may_alias(self) -> bool:
        """Whether a result may share memory with an argument although the schema does not say so."""
        return self.name in MAYBE_ALIAS


def short_name(target: str) -> str:
    """``torch.ops.aten.relu.default`` -> ``aten.relu.default``; other targets unchanged."""
    return target.removeprefix(_PREFIX)


@cache
def _lines() -> dict[str, str]:
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="ascii")
    return {_key(line): line for line in text.splitlines()}


def _key(line: str) -> str:
    space, _, rest = line.partition("(")[0].partition("::")
    name, _, overload = rest.partition(".")
    return f"{space}.{name}.{overload or 'default'}"


def names() -> frozenset[str]:
    """All operators of torch on the list, as ``aten.relu.default``."""
    return frozenset(_lines())


@cache
def signature(name: str) -> Signature | None:
    """Signature of ``aten.relu.default`` or of one of ours, or None when it is not on the list."""
    line = OWN.get(name) or _lines().get(name)
    return None if line is None else parse_schema(line)


def parse_schema(line: str) -> Signature:
    """torch's own text of a schema. Raises ValueError: the list is part of this package, a bad line is our defect."""
    match = _SCHEMA.match(line)
    if match is None:
        raise ValueError(f"not a schema: {line}")
    parameters: list[Parameter] = []
    keyword_only = False
    for part in _split(match["args"]):
        if part == "*":
            keyword_only = True
        else:
            parameters.append(_parameter(part, keyword_only))
    returns = (
        match["returns"].removeprefix("(").removesuffix(")") if match["returns"].startswith("(") else match["returns"]
    )
    return Signature(
        f"{match['space']}.{match['name']}.{match['overload'] or 'default'}",
        tuple(parameters),
        tuple(_type(r.split(" ")[0] if "(" not in r else r)[:2] for r in _split(returns)),
    )


def _parameter(text: str, keyword_only: bool) -> Parameter:
    head, equals, _ = text.partition("=")
    type_text, _, name = head.rpartition(" ")
    type_, alias, writes = _type(type_text)
    return Parameter(name, type_, not equals, keyword_only, alias, writes)


def _type(text: str) -> tuple[str, str, bool]:
    match = _ALIAS.search(text)
    if match is None:
        return text, "", False
    return _ALIAS.sub("", text), match["set"], bool(match["write"])


def _split(text: str) -> list[str]:
    """Split at the commas that are outside of brackets and quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0 and not quoted:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []
