"""Write records beside the programs of an archive that exists: everything else is copied byte by byte.

The zip is laid out as torch's writer lays it out (stored, in order, data on multiples of 64 bytes, 64-bit end
records), so that torch and Headway's strict reader take it alike; only the data descriptors are missing, because every
size is known beforehand.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import zipformat as zf
from headway_runtime.prepare.errors import Refusal

ALIGNMENT = 64
CHUNK = 4 << 20
ROOT = "archive"
_VERSION = 45  # of the zip format: the first with 64-bit sizes


def with_records(source: Path, target: Path, records: Mapping[str, bytes]) -> None:
    """Copy ``source`` to ``target`` with these records added or replaced. Raises Refusal ``archive.*``."""
    with zip_.open_archive(source) as archive, target.open("wb") as out:
        writer = _Writer(out)
        for name, entry in archive.entries.items():
            if name not in records:
                writer.add(name, entry.size, entry.crc, _parts(archive, name))
        for name, data in records.items():
            writer.add(name, len(data), zlib.crc32(data), [data])
        writer.finish()


def _parts(archive: zip_.Archive, name: str) -> Iterable[bytes]:
    """An entry's bytes, checked against their CRC."""
    entry, crc = archive.entries[name], 0
    for start in range(0, entry.size, CHUNK):
        part = archive.pread(entry.offset + start, min(CHUNK, entry.size - start))
        crc = zlib.crc32(part, crc)
        yield part
    if crc != entry.crc:
        raise Refusal("archive.crc").within(name)


class _Writer:
    """Entries one after the other, then the directory."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._central: list[bytes] = []

    def add(self, name: str, size: int, crc: int, parts: Iterable[bytes]) -> None:
        path = f"{ROOT}/{name}".encode("ascii")
        at, large = self._out.tell(), size >= zf.M32
        short = zf.M32 if large else size
        wide = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        padding = -(at + 30 + len(path) + len(wide) + 4) % ALIGNMENT
        extra = wide + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        self._out.write(zf.LOCAL + struct.pack("<HHHHH", _VERSION, 0, 0, 0, 0))
        self._out.write(struct.pack("<IIIHH", crc, short, short, len(path), len(extra)) + path + extra)
        for part in parts:
            self._out.write(part)
        sizes = [size, size] if large else []
        offsets = [at] if at >= zf.M32 else []
        wide = struct.pack(f"<HH{len(sizes + offsets)}Q", 1, 8 * len(sizes + offsets), *sizes, *offsets)
        wide = wide if sizes or offsets else b""
        self._central.append(
            zf.CENTRAL
            + struct.pack("<HHHHHH", _VERSION, _VERSION, 0, 0, 0, 0)
            + struct.pack("<IIIHHHHHII", crc, short, short, len(path), len(wide), 0, 0, 0, 0, min(at, zf.M32))
            + path
            + wide
        )

    def finish(self) -> None:
        at, directory, count = self._out.tell(), b"".join(self._central), len(self._central)
        end = at + len(directory)
        self._out.write(directory)
        self._out.write(
            zf.END64 + struct.pack("<QHHIIQQQQ", 44, _VERSION, _VERSION, 0, 0, count, count, len(directory), at)
        )
        self._out.write(zf.LOCATOR + struct.pack("<IQI", 0, end, 1))
        self._out.write(zf.END + struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), min(at, zf.M32), 0))
