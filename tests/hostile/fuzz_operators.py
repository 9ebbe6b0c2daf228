"""Call every listed operator with hostile arguments in forked children; an operator that dies does not belong on the
list.

    python tests/hostile/fuzz_operators.py [--calls 200] [--seed 0] [--only aten.pad]

A wrong argument may raise, and mostly does. A child that ends by a signal (or runs for ever) is a finding: name the
operator in ``derive_operators.DENIED``, or give it a precondition. Children are bounded in memory and time.
"""

import argparse
import os
import random
import re
import resource
import signal
import sys
import time
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed operators
from headway_runtime.prepare import operators, preconditions
from headway_runtime.prepare.errors import Refusal

SECONDS = 20
"""CPU time of a child."""
PATIENCE = 300
"""Seconds by the clock: a machine may be busy with other things."""
MEMORY = 6 << 30

INTS = [0, 1, 2, 3, 4, 5, 7, 64, -1, -2, -3, -5, 1000, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("nan"), 2.0**62]
TEXTS = [
    "none",
    "tanh",
    "mean",
    "sum",
    "constant",
    "reflect",
    "floor",
    "trunc",
    "zeros",
    "ij",
    "ij,jk->ik",
    "fro",
    "nuc",
    "L",
    "amax",
    "same",
]
SHAPES = [
    (),
    (0,),
    (1,),
    (3,),
    (5,),
    (2, 3),
    (3, 3),
    (0, 4),
    (4, 0, 2),
    (2, 3, 4),
    (1, 2, 4, 4),
    (2, 2, 3, 3),
    (1, 1, 2, 3, 3),
    (2, 1, 3, 2, 2, 1),
]
DTYPES = [
    torch.float32,
    torch.float32,
    torch.float32,
    torch.int64,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.float64,
    torch.complex64,
    torch.bfloat16,
    torch.uint8,
]
FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last]


def tensor(rng: random.Random) -> torch.Tensor:
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.randn(shape).to(dtype) * rng.choice([0, 1, 1, 1e30])
    else:
        made = torch.randint(rng.choice([-5, 0]), 6, shape).to(dtype)
    if made.dim() and rng.random() < 0.2:
        made = made.transpose(0, -1)
    if rng.random() < 0.1:
        made = made[:1].expand(3, *made.shape[1:]) if made.dim() else made.expand(2)
    return made


def argument(kind: str, rng: random.Random) -> Any:
    if kind.endswith("?"):
        return None if rng.random() < 0.4 else argument(kind[:-1], rng)
    if match := re.match(r"(\w+\??)\[(\d*)\]", kind):
        count = int(match[2]) if match[2] and rng.random() < 0.8 else rng.randrange(5)
        return [argument(match[1], rng) for _ in range(count)]
    small = rng.random() < 0.75
    match kind:
        case "Tensor":
            return tensor(rng)
        case "Scalar":
            return rng.choice([*INTS[:11], *FLOATS, True])
        case "int" | "SymInt":
            return rng.choice(INTS[:11] if small else INTS)
        case "float":
            return rng.choice(FLOATS)
        case "bool":
            return rng.random() < 0.5
        case "str":
            return rng.choice(TEXTS)
        case "ScalarType":
            return rng.choice(DTYPES)
        case "Device":
            return torch.device("cpu")
        case "Layout":
            return torch.strided
        case "MemoryFormat":
            return rng.choice(FORMATS)
    raise ValueError(kind)


def child(name: str, calls: int, seed: int) -> None:
    """Call the operator; what it raises is fine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    space, function, overload = name.split(".")
    call = getattr(getattr(getattr(torch.ops, space), function), overload)
    signature = operators.signature(name)
    assert signature is not None
    rng = random.Random(f"{seed}{name}")
    torch.manual_seed(seed)
    deadline = time.process_time() + SECONDS / 4
    for _ in range(calls):
        given = [p for p in signature.parameters if p.required or rng.random() < 0.5]
        values = {p.name: argument(p.type, rng) for p in given}
        try:
            preconditions.check(name, {k: {"str": v} if isinstance(v, str) else v for k, v in values.items()})
            with torch.inference_mode():
                call(*[values[p.name] for p in given if not p.keyword_only and p.required],
                     **{p.name: values[p.name] for p in given if p.keyword_only or not p.required})  # fmt: skip
        except (Refusal, Exception):
            pass
        if time.process_time() > deadline:
            break


def run(name: str, calls: int, seed: int) -> str | None:
    """How the child died, or None."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        child(name, calls, seed)
        os._exit(0)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else None
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"no end after {PATIENCE} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    findings = 0
    for number, name in enumerate(sorted(n for n in operators.names() if options.only in n)):
        if number % 100 == 0:
            print(f"{number} done, at {name}", flush=True)
        if (death := run(name, options.calls, options.seed)) is not None:
            findings += 1
            print(f"{name}: {death}", flush=True)
    print(f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
