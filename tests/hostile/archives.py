"""Take an honest archive apart and put it together again, altered. Payloads are harmless: at most they would touch a
marker file.
"""

import copy
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Entries = dict[str, bytes]
MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


def read(path: Path) -> Entries:
    """Entries by name without the root folder."""
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def write(path: Path, entries: Entries | Iterable[tuple[str, bytes]], *, root: str = "m") -> Path:
    """A stored archive with these entries, in order (names may repeat)."""
    items = entries.items() if isinstance(entries, dict) else entries
    return raw(path, [Entry(f"{root}/{name}", data) for name, data in items])


class Entry:
    """One entry as bytes, each field open to alteration before it is written."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = self.local_name = name.encode()
        self.data = data
        self.packed: bytes | None = None
        self.crc = zlib.crc32(data)
        self.flags = 0
        self.attributes = 0
        self.gap = b""  # written after the data
        self.extra = b""  # in the central directory
        self.local_extra = b""
        self.size: int | None = None  # said, where it is not that of the data
        self.at: int | None = None  # said to start there


def raw(
    path: Path, entries: list[Entry], *, comment: bytes = b"", trailing: bytes = b"", count: int | None = None
) -> Path:
    """Write the zip structures by hand."""
    out, central = io.BytesIO(), io.BytesIO()
    for e in entries:
        data = e.data if e.packed is None else e.packed
        method = 0 if e.packed is None else 8
        at = out.tell() if e.at is None else e.at
        given = (len(data), len(e.data)) if e.size is None else (e.size, e.size)
        sizes = struct.pack("<III", e.crc, *given)
        out.write(
            b"PK\3\4"
            + struct.pack("<HHHHH", 20, e.flags, method, 0, 0)
            + sizes
            + struct.pack("<HH", len(e.local_name), len(e.local_extra))
        )
        out.write(e.local_name + e.local_extra + data + e.gap)
        central.write(b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, e.flags, method, 0, 0) + sizes)
        central.write(struct.pack("<HHHHHII", len(e.name), len(e.extra), 0, 0, 0, e.attributes, at) + e.name + e.extra)
    directory = central.getvalue()
    number = len(entries) if count is None else count
    end = struct.pack("<HHHHIIH", 0, 0, number, number, len(directory), out.tell(), len(comment))
    path.write_bytes(out.getvalue() + directory + b"PK\5\6" + end + comment + trailing)
    return path


def document(entries: Entries, name: str = MODEL) -> Any:
    return json.loads(entries[name])


def altered(entries: Entries, change: Callable[[Any], Any], name: str = MODEL) -> Entries:
    """Entries with one JSON record changed; ``change`` alters it in place or returns another."""
    value = copy.deepcopy(document(entries, name))
    result = change(value)
    return {**entries, name: json.dumps(value if result is None else result).encode()}


def touch(marker: Path) -> str:
    """A Python expression that would create the marker."""
    return f"open({str(marker)!r},'w')"


class Touch:
    """Unpickling this would create the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def pickled(marker: Path) -> bytes:
    """A ``torch.save`` archive whose pickle would create the marker."""
    import torch

    out = io.BytesIO()
    torch.save(((Touch(marker),), {}), out, pickle_module=pickle)
    return out.getvalue()
