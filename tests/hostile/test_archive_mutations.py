"""Mutated archives: whatever the mutation, the inspector accepts or refuses; nothing else comes out of it, and it
always ends.

Three kinds: bytes of the file; bytes of the JSON with valid checksums around them; and values of the JSON (swapped,
dropped, copied, replaced by hostile ones). What is still accepted must also repack, and load or say why not.
`HEADWAY_MUTATIONS` sets how many of each (default 400).
"""

import copy
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headway_runtime.prepare import inspection, repack
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program import ProgramError, load_program

from tests.hostile import archives as ar

COUNT = int(os.environ.get("HEADWAY_MUTATIONS", "400"))
SECONDS_EACH = 5.0
"""CPU time: the machine may be busy with other things."""
HOSTILE: list[Any] = [
    None, True, -1, 0, 1 << 62, -(1 << 63), 1.5, 1e400, "", "x", "__import__('os')", "a" * 70_000,
    [], {}, [[]], {"as_int": 1}, "\u202e", "NaN",
    {"as_expr": {"expr_str": "Symbol('s77')"}}, {"as_tensor": {"name": "x"}}, {"as_none": True}, ["x"] * 1000,
]  # fmt: skip
RECORDS = (ar.MODEL, ar.WEIGHTS, "data/constants/model_constants_config.json")


def outcome(path: Path, target: Path) -> str:
    """The rule that refused it, or "accepted". Everything else fails the test."""
    started = time.process_time()
    try:
        found = inspection.inspect(str(path))
        repack.repack(found, path, target)
        rule = "accepted"
        load_program(target, dimension_names={})
    except ProgramError as error:
        rule = error.reason
    except Refusal as refused:
        rule = refused.rule
    assert time.process_time() - started < SECONDS_EACH
    return rule


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
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
        if isinstance(child, (dict, list)) and child and rng.random() < 0.85:
            value = child
            continue
        match rng.randrange(4):
            case 0:
                value[key] = copy.deepcopy(rng.choice(HOSTILE))
            case 1:
                del value[key]
            case 2:
                value[key] = copy.deepcopy(value[rng.choice(keys)])
            case _:
                if isinstance(value, dict):
                    value[rng.choice(["hook", "name", "as_int", "target", str(key) + "x"])] = copy.deepcopy(
                        rng.choice(HOSTILE)
                    )
                else:
                    value.append(copy.deepcopy(rng.choice(value)))
        return


def of_the_file(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    ar.write(path, entries)
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def of_the_json_text(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    name = rng.choice(RECORDS)
    ar.write(path, {**entries, name: mutate_bytes(entries[name], rng)})


def of_the_json_values(entries: ar.Entries, rng: random.Random, path: Path) -> None:
    name = rng.choice(RECORDS[:2])
    document = json.loads(entries[name])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        mutate_value(document, rng)
    ar.write(path, {**entries, name: json.dumps(document).encode()})


@pytest.mark.parametrize("mutation", [of_the_file, of_the_json_text, of_the_json_values])
@pytest.mark.parametrize("program", ["mlp", "cond"])
def test_mutations_are_accepted_or_refused_and_nothing_else(
    mutation: Callable[[ar.Entries, random.Random, Path], None],
    program: str,
    exported: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    entries = ar.read(exported(program))
    outcomes: dict[str, int] = {}
    for seed in range(COUNT):
        mutation(entries, random.Random(f"{seed}{program}{mutation.__name__}"), tmp_path / "mutant.pt2")
        rule = outcome(tmp_path / "mutant.pt2", tmp_path)
        outcomes[rule] = outcomes.get(rule, 0) + 1
    assert len(outcomes) > 2, outcomes  # the mutations reach more than one rule
