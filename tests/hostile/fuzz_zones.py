"""Make the calls that honest programs make, with one or two of their tensors altered, between guard zones.

    python -m tests.hostile.fuzz_zones [--only attention] [--seconds 600] [--programs encoder,bag]

Random arguments (``fuzz_operators``) seldom get past the first checks of an operator that takes several tensors. Here
everything fits but one tensor: it is shorter, longer, expanded, transposed, of another type, or full of indices that
are too large. Every tensor lies in a block of its own between two zones; a call is made twice, with other bytes in
the zones and in fresh memory. When the results differ, the operator has read what it was not given; when a zone has
changed, it has written there.
"""

import argparse
import ctypes
import itertools
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from headway_runtime.prepare import inspection, repack
from headway_runtime.program import functions, load_program
from torch.utils._pytree import tree_leaves, tree_map

from tests.hostile import zoo
from tests.hostile.forked import Forked

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Change = tuple[Any, ...]
Altered = tuple[Call, tuple[tuple[int, Change], ...]]
"""A call, and what is altered: number of the tensor, and how."""

ZONE = 8192
BYTES = (0x41, 0xBF)
READS, WRITES = 1, 2
FATES = {READS: "reads what it was not given", WRITES: "writes beside its tensors"}
M_PERTURB = -6
"""Of glibc's mallopt: what to fill fresh memory with."""
MAX_ELEMENTS = 40_000
PAIRS = 40
"""Of two alterations at once, drawn for each call."""
VIEWS = {"aten.as_strided.default", "aten.as_strided_scatter.default"}  # these may see all of their storage


def calls_of(source: Path, args: Any) -> list[Call]:
    """The calls of operators that a prepared program makes for these inputs, but those of large tensors."""
    found: list[Call] = []
    plain = functions.resolve

    def resolve(name: str) -> Any:
        function = plain(name)
        if name in functions.SCALARS or name in VIEWS:
            return function

        def call(*given: Any, **named: Any) -> Any:
            if sum(t.numel() for t in tensors((given, named))) <= MAX_ELEMENTS:
                found.append((name, _copied(given), _copied(named)))
            return function(*given, **named)

        return call

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(functions, "resolve", resolve):
        repack.repack(inspection.inspect(str(source)), source, Path(folder))
        load_program(Path(folder), dimension_names={}, pack=False).run(tensors(args))
    return found


def alterations(call: Call, rng: random.Random) -> list[Altered]:
    """One change at a time, all of them; and some pairs."""
    changes = [(i, c) for i, tensor in enumerate(tensors(call[1:])) for c in _changes(tensor)]
    pairs = [(rng.choice(changes), rng.choice(changes)) for _ in range(PAIRS if len(changes) > 1 else 0)]
    return [(call, (change,)) for change in changes] + [(call, pair) for pair in pairs]


def fuzz(cases: Sequence[Altered], *, budget: float | None = None) -> Iterator[str]:
    """What was found, in words. ``budget``: CPU time of children, in seconds."""
    forked = Forked(len(cases), lambda number: code(cases[number]), seconds=6.0, memory=12 << 30)
    for death in forked.run(budget=budget):
        yield f"{describe(cases[death.number])}: {death.fate}"
    for number, found in enumerate(forked.codes()):
        if found in FATES:
            yield f"{describe(cases[number])}: {FATES[found]}"


def code(case: Altered) -> int:
    """0 when the operator keeps to its tensors."""
    results = [_result(case, byte) for byte in BYTES]
    return WRITES if None in results else READS if results[0] != results[1] else 0


def describe(case: Altered) -> str:
    (name, *given), changes = case
    return f"{name} of {[tuple(t.shape) for t in tensors(given)]} with {changes}"


def _changes(tensor: torch.Tensor) -> Iterator[Change]:
    for axis, size in enumerate(tensor.shape):
        yield from (("size", axis, n) for n in {0, 1, size // 2, size - 1, size + 1, 2 * size} - {size, -1})
        yield ("expanded", axis)
    if tensor.dim() > 1:
        yield ("transposed",)
    yield from (("flat",), ("front",))
    if tensor.is_floating_point():
        yield from (("full", float("nan")), ("full", 1e30), ("type", torch.bfloat16))
    elif tensor.dtype in {torch.int32, torch.int64}:
        yield from (("full", torch.iinfo(tensor.dtype).max), ("full", -1), ("more",), ("type", torch.int32))


def _changed(tensor: torch.Tensor, change: Change) -> torch.Tensor:
    match change:
        case ("size", int(axis), int(size)) if axis < tensor.dim() and size <= 2 * tensor.shape[axis]:
            return torch.cat([tensor] * 2, axis).narrow(axis, 0, size)
        case ("flat",):
            return tensor.reshape(-1)
        case ("front",):
            return tensor[None]
        case ("full", value):
            return torch.full_like(tensor, value)
        case ("type", dtype):
            return tensor.to(dtype)
        case ("more",):
            return tensor + 1
    return tensor


def _laid_out(tensor: torch.Tensor, changes: Sequence[Change], byte: int) -> torch.Tensor:
    """In a block of its own between zones; expanded or transposed within it."""
    for change in changes:
        if change[0] == "expanded" and change[1] < tensor.dim() and tensor.shape[change[1]] > 1:
            return _zoned(tensor.narrow(change[1], 0, 1), byte).expand(tensor.shape)
        if change[0] == "transposed" and tensor.dim() > 1:
            return _zoned(tensor.transpose(-1, -2), byte).transpose(-1, -2)
    return _zoned(tensor, byte)


def _zoned(tensor: torch.Tensor, byte: int) -> torch.Tensor:
    size = tensor.numel() * tensor.element_size()
    block = torch.full((size + 2 * ZONE,), byte, dtype=torch.uint8)
    return block[ZONE : ZONE + size].view(tensor.dtype).view(tensor.shape).copy_(tensor)


def _result(case: Altered, byte: int) -> bytes | None:
    """The bytes of the results; none when it raises, None when it writes into a zone."""
    (name, args, named), changes = case
    number = itertools.count()

    def lay_out(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        at = next(number)
        mine = [change for i, change in changes if i == at]
        for change in mine:
            leaf = _changed(leaf, change)
        return _laid_out(leaf, mine, byte)

    try:
        args, named = tree_map(lay_out, (args, named))
    except RuntimeError:  # a value that the other type has not
        return b""
    ctypes.CDLL(None).mallopt(M_PERTURB, byte)
    try:
        with torch.inference_mode():
            results = tensors(functions.resolve(name)(*args, **named))
            plain = [t.resolve_conj().resolve_neg().contiguous().reshape(-1) for t in results if t.numel()]
            found = b"|".join(t.view(torch.uint8).numpy().tobytes() for t in plain)
    except Exception:
        found = b""
    finally:
        ctypes.CDLL(None).mallopt(M_PERTURB, 0)
    return found if all(_untouched(t, byte) for t in tensors((args, named))) else None


def _untouched(tensor: torch.Tensor, byte: int) -> bool:
    block = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return bool((block[:ZONE] == byte).all() and (block[-ZONE:] == byte).all())


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested arguments or results, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _copied(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--programs", default="", help="of the zoo, separated by commas; all by default")
    parser.add_argument("--seconds", type=float, help="CPU time to spend on calls")
    options = parser.parse_args()
    torch.set_num_threads(1)
    calls: dict[str, Call] = {}
    for name in options.programs.split(",") if options.programs else sorted(zoo.PROGRAMS):
        case = zoo.PROGRAMS[name]
        with tempfile.TemporaryDirectory() as folder:
            case.export(Path(folder, "model.pt2"))
            found = calls_of(Path(folder, "model.pt2"), (case.args, dict(case.kwargs)))
        calls |= {describe((call, ())): call for call in found if options.only in call[0]}
    rng = random.Random(0)
    cases = [case for call in calls.values() for case in alterations(call, rng)]
    findings = 0
    for text in fuzz(cases, budget=options.seconds):
        findings += 1
        print(text, flush=True)
    print(f"{len(calls)} calls, {len(cases)} alterations: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
