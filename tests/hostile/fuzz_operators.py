"""Call every listed operator with hostile arguments; an operator that dies does not belong on the list.

    python -m tests.hostile.fuzz_operators [--calls 300] [--seed 0] [--only aten.pad] [--twice]

Operators are called as the serving process calls them: after the inspector's preconditions, through its guards. A wrong
argument may raise, and mostly does. A call that ends the process, or takes longer than it may, is a finding: name the
operator in ``derive_operators.DENIED``, give it a precondition, or guard it.

Calls are made in children bounded in memory and time (``forked``).
"""

import argparse
import ctypes
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import operators, preconditions
from headway_runtime.program import functions
from torch.utils._pytree import tree_leaves

from tests.hostile.forked import Death, Forked
from tests.hostile.fuzz_arguments import Arguments

SECONDS = 3.0
"""CPU time of one call."""
MEMORY = 6 << 30
SHARED, UNSET = 1, 2
FATES = {SHARED: "a result in the memory of an argument", UNSET: "a result of memory that was never set"}
M_PERTURB = -6
"""Of glibc's mallopt: what to fill memory with. Blocks that malloc maps are zero all the same."""
MAX_DEATHS = 3
"""Of one operator: after that the next one is tried."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``call`` is the number of the call: with the seed it gives the same arguments again."""

    operator: str
    call: int
    fate: str

    def __str__(self) -> str:
        return f"{self.operator} call {self.call}: {self.fate}"


def fuzz(
    names: Sequence[str], *, calls: int, seed: int, budget: float | None = None, twice: bool = False
) -> Iterator[Finding]:
    """Findings, as they are met. ``budget``: stop after so much CPU time of children, in seconds. ``twice``: make each
    call once more with other bytes in all fresh memory; if the results differ, some of that memory was never set.
    """
    arguments = Arguments(random.Random())
    deaths: Counter[int] = Counter()

    def work(number: int) -> int:
        name = names[number // calls]
        calling = f"{seed}{name}{number % calls}"
        values, result = one(name, calling, arguments)
        if shares_unsaid(name, values, result):
            return SHARED
        return UNSET if twice and len({_filled(name, calling, arguments, byte) for byte in (0x5A, 0xA5)}) > 1 else 0

    def skip(death: Death) -> int:
        deaths[death.number // calls] += 1
        return (death.number // calls + 1) * calls if deaths[death.number // calls] >= MAX_DEATHS else 0

    forked = Forked(len(names) * calls, work, seconds=SECONDS, memory=MEMORY)
    for death in forked.run(budget=budget, skip=skip):
        yield Finding(names[death.number // calls], death.number % calls, death.fate)
    found = [(number, code) for number, code in enumerate(forked.codes()) if code in FATES]
    for (operator, code), group in itertools.groupby(found, lambda item: (item[0] // calls, item[1])):
        yield Finding(names[operator], next(group)[0] % calls, FATES[code])


def shares_unsaid(name: str, values: object, result: object) -> bool:
    """Whether a result lies in an argument's memory although neither the schema nor our own list says that it may:
    a write to it would be a write to a weight that the inspector does not see.
    """
    signature = operators.signature(name)
    assert signature is not None
    if signature.may_alias or any(alias for _, alias in signature.returns):
        return False
    given = {t.untyped_storage().data_ptr() for t in _tensors(values) if t.numel()}
    return any(t.untyped_storage().data_ptr() in given for t in _tensors(result) if t.numel())


def _filled(name: str, calling: str, arguments: Arguments, byte: int) -> bytes:
    """The bytes of the results of a call, where malloc hands out memory full of ``byte``."""
    fill = ctypes.CDLL(None).mallopt
    fill(M_PERTURB, byte)
    try:
        result = one(name, calling, arguments)[1]
    finally:
        fill(M_PERTURB, 0)
    if isinstance(result, Exception):
        return b""
    try:
        plain = [t.detach().resolve_conj().resolve_neg() for t in _tensors(result)]
        fresh = [t.clone(memory_format=torch.contiguous_format).reshape(-1) for t in plain if t.numel()]
    except RuntimeError:
        return b""  # too large to copy, or a negative view of a type that has no negation
    return b"|".join(t.view(torch.uint8).numpy().tobytes() for t in fresh)


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def one(name: str, seed: str, arguments: Arguments) -> tuple[dict[str, Any], object]:
    """One call: its arguments, and its result; or what it raises, which is fine."""
    signature = operators.signature(name)
    assert signature is not None
    arguments.seed(seed)
    args, named, values = arguments.of(signature)
    try:
        preconditions.check(name, {k: {"str": v} if isinstance(v, str) else v for k, v in values.items()})
        with torch.inference_mode():
            return values, functions.resolve(name)(*args, **named)
    except (Refusal, Exception) as error:
        return values, error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--twice", action="store_true", help="also look for results of memory that was never set")
    parser.add_argument("--show", type=int, help="print the arguments of this call of the only operator, and call it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = sorted(n for n in operators.names() if options.only in n)
    if options.show is not None:
        signature = operators.signature(names[0])
        assert signature is not None
        arguments = Arguments(random.Random())
        arguments.seed(f"{options.seed}{names[0]}{options.show}")
        print(names[0], *arguments.of(signature)[:2], flush=True)
        print(one(names[0], f"{options.seed}{names[0]}{options.show}", arguments)[1])
        return 0
    findings = 0
    for finding in fuzz(names, calls=options.calls, seed=options.seed, twice=options.twice):
        findings += 1
        print(finding, flush=True)
    print(f"{len(names)} operators, {options.calls} calls each: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
