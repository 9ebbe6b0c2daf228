"""Mutations of an honest archive, by kind: its bytes, its zip headers, the text of its JSON, and the values in it.

Each takes the entries, a source of randomness and the path to write to. The same randomness gives the same file.
"""

import copy
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import archives as ar

Mutation = Callable[[ar.Entries, random.Random, Path], None]

CODE = "open('{marker}', 'w')"
"""Would create the marker, were it evaluated. The runner fills in the path."""
TEXTS = [
    "", "x", "a" * 70_000, "\u202e", "\ud800", "NaN", "__import__('os')", CODE, f"x={CODE}", f"a\n{CODE}", "../../x",
    "/etc/passwd", "s77", "Symbol('s77', positive=True, integer=True)", f"({CODE}, Symbol('s77'))[1]",
    "Pow(Integer(9), Integer(8))", "Mul(" + ", ".join(["Integer(4611686018427387903)"] * 40) + ")",
    "L['x'].size()[0] == 3", "L.size()[0] == 3", f"True #\n, 'x')\n{CODE}\ndef _(*a):\n  torch._assert(True",
    "torch.ops.aten.from_file.default", "torch.ops.aten.relu_.default", "torch.ops.aten.add_.Tensor", "builtins.eval",
    "torch.ops.higher_order.while_loop", "_operator.mul", '[1, {"type": null, "context": null, "children_spec": []}]',
    '[1, {"type": "collections.defaultdict", "context": ["os", "system"], "children_spec": []}]', "\0", "ij,jk->ik",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 7, 12, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 64, 1.5, 1e308, -0.0,
    [], {}, [[]], {"as_int": 1}, {"as_int": -1}, {"as_int": 1 << 40}, {"as_expr": {"expr_str": "Symbol('s77')"}},
    {"as_tensor": {"name": "x"}}, {"as_none": True}, {"as_string": "x"}, {"as_sym_int": {"as_name": "sym_size_int_1"}},
    {"as_ints": [1 << 40, 1 << 40]}, {"as_float": "Infinity"}, {"as_operator": "torch.load"}, ["x"] * 1000,
    {"as_custom_obj": {"name": "o", "class_fqn": "os.system"}}, {"as_bool": True}, {"as_floats": [1e300, "NaN"]},
]  # fmt: skip


def of_the_bytes(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Anything in the file."""
    ar.write(path, entries)
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def of_the_headers(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Fields of the zip's headers and end record."""
    ar.write(path, entries)
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 3])):
        mark = rng.choice([b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\1\2"])
        found = [at for at in range(len(data) - 4) if data[at : at + 4] == mark]
        if not found:
            continue
        at = rng.choice(found) + rng.randrange(4, 46)
        value = rng.choice(
            [0, 1, 8, 20, 0xFFFF, 0xFFFFFFFF, rng.randrange(1 << 16), len(data), rng.randrange(len(data))]
        )
        size = rng.choice([1, 2, 4])
        data[at : at + size] = struct.pack("<I", value & 0xFFFFFFFF)[:size]
    path.write_bytes(data)


def of_the_entries(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Whole entries: left out, twice, renamed, another's bytes, reordered."""
    items = list(entries.items())
    at = rng.randrange(len(items))
    name, data = items[at]
    match rng.randrange(6):
        case 0:
            del items[at]
        case 1:
            items.insert(rng.randrange(len(items)), (name, rng.choice(items)[1]))
        case 2:
            names = [
                "extra/a",
                "extra/headway.json",
                "data/weights/weight_1",
                "models/b.json",
                name.upper(),
                "../x",
                "a/b",
            ]
            items[at] = (rng.choice(names), data)
        case 3:
            items[at] = (name, rng.choice(items)[1])
        case 4:
            rng.shuffle(items)
        case _:
            items[at] = (name, mutate_bytes(data or b"\0", rng))
    ar.write(path, items)


def of_the_text(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """The text of a JSON record."""
    name = rng.choice(_records(entries))
    ar.write(path, {**entries, name: mutate_bytes(entries[name], rng)})


def of_the_values(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Values of a JSON record, chosen by walking down its tree."""
    name = rng.choice(_records(entries))
    document = json.loads(entries[name])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        mutate_value(document, rng)
    ar.write(path, {**entries, name: json.dumps(document).encode()})


def of_the_trees(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Values inside a tree spec, which is JSON in a string; and guards, ranges and sizes replaced by text."""
    document = json.loads(entries[ar.MODEL])
    call = document["graph_module"]["module_call_graph"][0]["signature"]
    match rng.randrange(4):
        case 0 | 1:
            key = rng.choice(["in_spec", "out_spec"])
            tree = json.loads(call[key])
            mutate_value(tree, rng)
            call[key] = json.dumps(tree)
        case 2:
            guards = document["guards_code"]
            text = rng.choice([*TEXTS, *guards, *guards])
            at = rng.randrange(len(text) + 1)
            guards.append(
                text[:at] + rng.choice(["(", "[0]", " + ", "**", " == 1", "not ", "L", ".size()", "9" * 30]) + text[at:]
            )
        case _:
            constraints = document["range_constraints"]
            limits = {"min_val": rng.choice([0, 2, -5, 1 << 62, None]), "max_val": rng.choice([None, 1, -1, 1 << 40])}
            constraints[rng.choice([*constraints, *TEXTS, "s77 + 1", "2*s77", "s77//0", "u0"])] = limits
    ar.write(path, {**entries, ar.MODEL: json.dumps(document).encode()})


def of_the_graph(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    """Values of the same kind exchanged inside the program: what stays well formed and means something else."""
    document = json.loads(entries[ar.MODEL])
    places: dict[str, list[tuple[Any, Any]]] = {}
    _places(document, "", places)
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        group = places[rng.choice(sorted(places))]
        (one, key), (other, key2) = rng.choice(group), rng.choice(group)
        value = copy.deepcopy(other[key2])
        if type(value) is int and rng.random() < 0.5:
            value = rng.choice([value + 1, value - 1, -value, value * 2, 0, 1 << 20, 1 << 33])
        one[key] = value
    ar.write(path, {**entries, ar.MODEL: json.dumps(document).encode()})


MUTATIONS: tuple[Mutation, ...] = (
    of_the_bytes, of_the_headers, of_the_entries, of_the_text, of_the_values, of_the_values, of_the_graph, of_the_graph,
    of_the_trees,
)  # fmt: skip


def _records(entries: ar.Entries) -> list[str]:
    found = [name for name in entries if name.endswith(".json")]
    return [*found, ar.MODEL, ar.MODEL]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, removed, repeated or replaced by marks of a zip."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(out))
        match rng.randrange(4):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                del out[at : at + rng.choice([1, 2, 22, 100])]
            case 2:
                out[at:at] = out[rng.randrange(len(out)) :][: rng.choice([1, 4, 46, 200])]
            case _:
                out[at : at + 4] = rng.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"PK\5\6", b"PK\1\2", b"\x01\0\0\0"])
        out = out or bytearray(b"\0")
    return bytes(out)


def mutate_value(value: Any, rng: random.Random) -> None:
    """Change one place in a JSON tree, chosen by walking down at random."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = rng.choice(keys)
        child = value[key]
        if isinstance(child, dict | list) and child and rng.random() < 0.85:
            value = child
            continue
        hostile = copy.deepcopy(
            rng.choice(TEXTS if isinstance(child, str) and rng.random() < 0.7 else [*VALUES, *TEXTS])
        )
        match rng.randrange(5):
            case 0 | 1:
                value[key] = hostile
            case 2:
                del value[key]
            case 3:
                value[key] = copy.deepcopy(value[rng.choice(keys)])
            case _ if isinstance(value, dict):
                value[rng.choice(["hook", "name", "as_int", "target", f"{key}x"])] = hostile
            case _:
                value.append(hostile)
        return


def _places(value: Any, kind: str, places: dict[str, list[tuple[Any, Any]]]) -> None:
    """(container, key) of every value, by what stands there: the key's name and the type."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in items:
        name = key if isinstance(value, dict) and kind not in {"tensor_values", "sym_int_values"} else kind
        places.setdefault(f"{name} {type(child).__name__}", []).append((value, key))
        if isinstance(child, dict | list):
            _places(child, str(name), places)
