"""A checked artifact into the prepared form: a directory with canonical JSON and aligned raw weights. Same program,
same bytes.

programs/<name>.json           a program (``program.FORMAT``): canonical names, guards and ranges as data
programs/<name>.samples.json   its golden samples, when the artifact carries them
weights.bin                    the records of all programs' weights, each once and aligned, to be mapped read-only
tokenizer.json                 the tokenizer that the artifact carries, if any
prepared.json                  written last: digest, size and torch version; its presence says that the rest is complete
"""

import os
import zlib
from pathlib import Path
from typing import Any

from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.inspection import Inspection
from headway_runtime.prepare.storage import Copy

PROGRAMS = "programs"
WEIGHTS = "weights.bin"
TOKENIZER = "tokenizer.json"
MARKER = "prepared.json"
CHUNK = 1 << 20


def program_file(directory: Path, name: str) -> Path:
    """Where the program of this name stands."""
    return directory / PROGRAMS / f"{name}.json"


def samples_file(directory: Path, name: str) -> Path:
    """Where its golden samples stand; missing when it has none."""
    return directory / PROGRAMS / f"{name}.samples.json"


def program_names(directory: Path) -> list[str]:
    """The programs in a prepared directory, sorted."""
    files = (directory / PROGRAMS).glob("*.json")
    return sorted(f.name.removesuffix(".json") for f in files if "." not in f.name.removesuffix(".json"))


def repack(inspection: Inspection, source: Path, target: Path) -> None:
    """Write the prepared form of ``source`` into the existing directory ``target`` (all but the marker).

    Each record is checked against its CRC while it is copied. Raises Refusal ``archive.crc``, ``tensor.bool``.
    """
    (target / PROGRAMS).mkdir(exist_ok=True)
    for name, program in inspection.programs.items():
        _write(program_file(target, name), strict_json.dump(program.document))
        if program.samples:
            _write(samples_file(target, name), strict_json.dump(list(program.samples)))
    read = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if inspection.tokenizer is not None:
            with (target / TOKENIZER).open("wb") as out:
                _copy(read, inspection.tokenizer, out)
        temporary = target / f".{WEIGHTS}"
        with temporary.open("wb") as out:
            for copy in inspection.copies:
                _copy(read, copy, out)
            out.truncate(inspection.weights_bytes)
    finally:
        os.close(read)
    temporary.replace(target / WEIGHTS)


def mark(target: Path, facts: dict[str, Any]) -> None:
    """Write the marker: from here on the directory is complete."""
    _write(target / MARKER, strict_json.dump(facts))


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _copy(read: int, copy: Copy, out: Any) -> None:
    crc, done = 0, 0
    out.seek(copy.target)
    while done < copy.size:
        part = os.pread(read, min(CHUNK, copy.size - done), copy.source + done)
        if not part:
            break
        crc = zlib.crc32(part, crc)
        if copy.boolean and part.translate(None, b"\0\1"):
            raise Refusal("tensor.bool").within(copy.name)
        out.write(part)
        done += len(part)
    if done != copy.size or crc != copy.crc:
        raise Refusal("archive.crc").within(copy.name)
