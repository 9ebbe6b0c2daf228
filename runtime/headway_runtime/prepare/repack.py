"""A checked artifact into the prepared form: a directory with canonical JSON and aligned raw weights. Same program,
same bytes.

program.json    the program (``program.FORMAT``), canonical names, guards and ranges as data
weights.bin     the records of all weights, each aligned to 64 bytes, to be mapped read-only
samples.json    golden samples, when the artifact carries them
prepared.json   written last: digest, size and torch version; its presence says that the rest is complete
"""

import os
import zlib
from pathlib import Path
from typing import Any

from headway_runtime.prepare import strict_json
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.inspection import Copy, Inspection

PROGRAM = "program.json"
WEIGHTS = "weights.bin"
SAMPLES = "samples.json"
MARKER = "prepared.json"
CHUNK = 4 << 20


def repack(inspection: Inspection, source: Path, target: Path) -> None:
    """Write the prepared form of ``source`` into the existing directory ``target`` (all but the marker).

    Each record is checked against its CRC while it is copied. Raises Refusal ``archive.crc``, ``tensor.bool``.
    """
    _write(target / PROGRAM, strict_json.dump(inspection.document))
    if inspection.samples:
        _write(target / SAMPLES, strict_json.dump(list(inspection.samples)))
    temporary = target / f".{WEIGHTS}"
    read = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
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
