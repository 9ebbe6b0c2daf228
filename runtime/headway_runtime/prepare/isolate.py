"""Inspection in a short-lived process with limits: what a parser does with a hostile file cannot outlive or outgrow it.

The parent starts ``python -m headway_runtime.prepare.isolate FILE`` with an empty environment; the child limits
itself before it opens the file, and answers with one JSON document on standard output.
"""

import json
import os
import resource
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.inspection import Inspected, Inspection, inspect
from headway_runtime.prepare.storage import Copy

ADDRESS_SPACE = 2 << 30
CPU_SECONDS = 30
WALL_SECONDS = 120
_LIMITS = {
    resource.RLIMIT_AS: ADDRESS_SPACE,
    resource.RLIMIT_CPU: CPU_SECONDS,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 32,
}


def inspect_isolated(path: Path) -> Inspection:
    """Like :func:`inspect`, in a process of its own. Raises Refusal, also when that process dies or exceeds its
    limits.
    """
    environment = {k: v for k, v in os.environ.items() if k in {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"}}
    # -P: no module from the folder that the user is in, which may have come with the file. -s: none from the home.
    command = [sys.executable, "-P", "-s", "-m", __name__, str(path)]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as e:
        raise Refusal("inspector.limits", f"{WALL_SECONDS} s") from e
    if done.returncode < 0:
        raise Refusal("inspector.limits", f"the inspector was ended by signal {-done.returncode}")
    try:
        answer = json.loads(done.stdout)
    except ValueError as e:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Refusal("inspector.malformed", last) from e
    if "refused" in answer:
        raise Refusal.restore(**answer["refused"])
    found = answer["inspection"]
    programs = {
        name: Inspected(**{**program, "samples": tuple(program["samples"])})
        for name, program in found["programs"].items()
    }
    tokenizer = found["tokenizer"] and Copy(**found["tokenizer"])
    copies = tuple(Copy(**copy) for copy in found["copies"])
    return Inspection(programs, copies, found["weights_bytes"], tokenizer)


def _answer(path: str) -> dict[str, Any]:
    try:
        found = inspect(path)
    except Refusal as r:
        return {"refused": r.to_dict()}
    answer = _fields(found)
    answer["programs"] = {name: _fields(program) for name, program in found.programs.items()}
    answer["copies"] = [_fields(copy) for copy in found.copies]
    answer["tokenizer"] = found.tokenizer and _fields(found.tokenizer)
    return {"inspection": answer}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are: ``asdict`` would copy whole programs."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _write(value: Any, out: TextIO) -> None:
    """As JSON, item by item of dictionaries and lists: encoding a whole program at once takes 15 times its text."""
    if isinstance(value, dict) and value:
        mark = "{"
        for key, item in value.items():
            out.write(f"{mark}{json.dumps(key)}:")
            _write(item, out)
            mark = ","
        out.write("}")
    elif isinstance(value, list | tuple) and value:
        for number, item in enumerate(value):
            out.write(("," if number else "[") + json.dumps(item, separators=(",", ":")))
        out.write("]")
    else:
        out.write(json.dumps(value))


def main() -> None:
    """The child: limits first, then the file named by the argument."""
    for kind, value in _LIMITS.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
    _write(_answer(sys.argv[1]), sys.stdout)


if __name__ == "__main__":
    main()
