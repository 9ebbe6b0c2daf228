"""A strict reader of the zip layout that ``torch.export.save`` writes.

Zip readers disagree (duplicate names, case, entry counts, trailing bytes, sizes that differ between the two copies of
a header): a file that two of them read differently shows a checker one program and a loader another. So everything
ambiguous is refused: one end record in the last 22 bytes, stored entries only, in order, with no gap and no overlap,
both headers equal, names ASCII and unique ignoring case, one root folder. The folder's own name is that of the file it
was saved to, "my model" or "modèle": it is equal in all entries and used for nothing. Nothing is mapped or extracted;
entries are read by offset from one open file.
"""

import os
import re
import stat
import struct
import zlib
from dataclasses import dataclass, field
from typing import Self

from headway_runtime.prepare.errors import Refusal

MAX_ENTRIES = 20_000
MAX_CENTRAL = 16 << 20
CHUNK = 4 << 20

_SEGMENT = r"[A-Za-z0-9_.@-]{1,128}"
_NAME = re.compile(rf"{_SEGMENT}(/{_SEGMENT}){{0,5}}\Z", re.ASCII)  # within the root folder
MAX_ROOT = 255  # bytes
_END, _END64, _LOCATOR, _CENTRAL, _LOCAL, _DESCRIPTOR = (
    b"PK\5\6",
    b"PK\6\6",
    b"PK\6\7",
    b"PK\1\2",
    b"PK\3\4",
    b"PK\7\x08",
)
_M32, _M16 = 0xFFFFFFFF, 0xFFFF
_UTF8 = 0x0800
_FLAGS = 0x0008 | _UTF8  # data descriptor, UTF-8 names


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an entry's bytes lie in the file, how many, and their CRC-32."""

    offset: int
    size: int
    crc: int


@dataclass(slots=True)
class Archive:
    """Entries by name without the root folder. Holds the open file; close it, or use it as a context manager."""

    descriptor: int
    size: int
    base: int = 0  # where the archive starts in the file: one archive may be an entry of another
    entries: dict[str, Entry] = field(default_factory=dict)

    def read(self, name: str, limit: int) -> bytes:
        """Bytes of an entry of at most ``limit`` bytes, checked against its CRC. Raises Refusal ``archive.*``."""
        entry = self.entries[name]
        if entry.size > limit:
            raise Refusal("archive.record_size", f"{entry.size} bytes, at most {limit}").within(name)
        data = self.pread(entry.offset, entry.size)
        if zlib.crc32(data) != entry.crc:
            raise Refusal("archive.crc", "").within(name)
        return data

    def pread(self, offset: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = os.pread(self.descriptor, size - len(data), self.base + offset + len(data))
            if not part:
                raise Refusal("archive.layout", "the file ends early")
            data = data + part if data else part
        return data

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_archive(path: str | os.PathLike[str]) -> Archive:
    """Open and check the layout of a file. Raises Refusal ``archive.*``; never follows a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        raise Refusal("archive.file", e.strerror) from e
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Refusal("archive.file", "not a regular file")
        archive = Archive(descriptor, status.st_size)
        read_entries(archive)
        return archive
    except BaseException:
        os.close(descriptor)
        raise


def nested(archive: Archive, name: str) -> Archive:
    """An entry that is itself an archive. It shares the open file, so it is not to be closed."""
    entry = archive.entries[name]
    inner = Archive(archive.descriptor, entry.size, archive.base + entry.offset)
    read_entries(inner)
    return inner


def read_entries(archive: Archive) -> None:
    """Fill ``archive.entries``. Raises Refusal ``archive.*``."""
    count, central_at, central_size = _end_records(archive)
    central = archive.pread(central_at, central_size)
    position, expected, root = 0, 0, None
    seen: set[str] = set()
    for _ in range(count):
        entry, name, header_at, position, flags = _central_header(central, position)
        folder, _, short = name.partition("/")
        root = root or folder
        if folder != root or name.lower() in seen:
            raise Refusal("archive.name", f"{name!r} is a duplicate or outside of {root!r}")
        seen.add(name.lower())
        if header_at != expected:
            raise Refusal("archive.layout", f"{name!r} starts at {header_at}, expected {expected}")
        data_at = _local_header(archive, header_at, name, entry, flags)
        expected = _end_of_data(archive, data_at, entry, flags, central_at)
        archive.entries[short] = Entry(data_at, entry.size, entry.crc)
    if position != len(central) or expected != central_at:
        raise Refusal("archive.layout", "bytes outside of any entry")


def _end_records(archive: Archive) -> tuple[int, int, int]:
    """(entries, offset of the central directory, its size)."""
    if archive.size < 22:
        raise Refusal("archive.not_zip", f"{archive.size} bytes")
    tail_size = min(archive.size, 22 + 20 + 56)
    tail = archive.pread(archive.size - tail_size, tail_size)
    if tail[-22:-18] != _END:
        raise Refusal(
            "archive.not_zip" if not _looks_like_zip(archive) else "archive.end_record",
            "the last 22 bytes are no end record",
        )
    disk, disk_c, here, count, size, at, comment = struct.unpack("<HHHHIIH", tail[-18:])
    if disk or disk_c or comment or here != count:
        raise Refusal("archive.end_record", "several disks, or a comment")
    end = archive.size - 22
    if tail[-42:-38] == _LOCATOR:
        if len(tail) < 98 or tail[:4] != _END64:
            raise Refusal("archive.zip64", "end record and locator do not touch")
        size64, _, _, disk, disk_c, here64, count64, csize, cat = struct.unpack("<QHHIIQQQQ", tail[4:56])
        disk_l, at64, disks = struct.unpack("<IQI", tail[-38:-22])
        agree = count in (count64, _M16) and size in (csize, _M32) and at in (cat, _M32)
        if size64 != 44 or disk or disk_c or disk_l or disks != 1 or here64 != count64 or at64 != end - 76 or not agree:
            raise Refusal("archive.zip64", "the two end records disagree")
        count, size, at, end = count64, csize, cat, end - 76
    if count > MAX_ENTRIES or size > MAX_CENTRAL or at + size != end:
        raise Refusal("archive.end_record", f"{count} entries, directory of {size} bytes at {at}, ends at {end}")
    return count, at, size


def _looks_like_zip(archive: Archive) -> bool:
    return archive.pread(0, 4) == _LOCAL


def _central_header(central: bytes, at: int) -> tuple[Entry, str, int, int, int]:
    """(entry without offset, name, offset of the local header, where the next header starts, flags)."""
    if at + 46 > len(central) or central[at : at + 4] != _CENTRAL:
        raise Refusal("archive.layout", "central directory")
    flags, method = struct.unpack_from("<HH", central, at + 8)
    crc, packed, size = struct.unpack_from("<III", central, at + 16)
    name_n, extra_n, comment_n, disk = struct.unpack_from("<HHHH", central, at + 28)
    external, header_at = struct.unpack_from("<II", central, at + 38)
    name_end = at + 46 + name_n
    extra = central[name_end : name_end + extra_n]
    if (
        name_end + extra_n > len(central)
        or flags & ~_FLAGS
        or method
        or comment_n
        or disk
        or stat.S_ISLNK(external >> 16)
    ):
        raise Refusal("archive.entry", "compressed, encrypted, commented, split or a link")
    size, packed, header_at = _zip64_sizes(extra, size, packed, header_at)
    if size != packed:
        raise Refusal("archive.entry", "stored and real size differ")
    return Entry(0, size, crc), _name(central[at + 46 : name_end], flags), header_at, name_end + extra_n, flags


def _zip64_sizes(extra: bytes, size: int, packed: int, header_at: int) -> tuple[int, int, int]:
    """Values too large for 32 bits stand in the extra field, in this order."""
    if _M32 not in (size, packed, header_at):
        return size, packed, header_at
    if extra[:2] != b"\1\0":
        raise Refusal("archive.zip64", "a large size without its extra field")
    position, values = 4, []
    for value in (size, packed, header_at):
        if value == _M32:
            if position + 8 > len(extra):
                raise Refusal("archive.zip64", "extra field too short")
            value = int.from_bytes(extra[position : position + 8], "little")
            position += 8
        values.append(value)
    return values[0], values[1], values[2]


def _name(raw: bytes, flags: int) -> str:
    folder, _, short = raw.partition(b"/")
    try:
        root, inner = folder.decode("utf-8" if flags & _UTF8 else "ascii"), short.decode("ascii")
    except UnicodeDecodeError as e:
        raise Refusal("archive.name", repr(raw[:80])) from e
    plain = root.isprintable() and "\\" not in root and len(folder) <= MAX_ROOT
    if not plain or root in {"", ".", ".."} or not _NAME.match(inner) or {".", ".."} & set(inner.split("/")):
        raise Refusal("archive.name", f"{root}/{inner}")
    return f"{root}/{inner}"


def _local_header(archive: Archive, at: int, name: str, entry: Entry, flags: int) -> int:
    """Offset of the data; the local header must say what the central one said (or leave sizes to the descriptor)."""
    head = archive.pread(at, 30)
    local_flags, method = struct.unpack_from("<HH", head, 6)
    crc, packed, size, name_n, extra_n = struct.unpack_from("<IIIHH", head, 14)
    agree = (packed, size) in ((entry.size, entry.size), (_M32, _M32)) and crc == entry.crc
    agree = agree or bool(flags & 8 and (packed, size) in ((0, 0), (_M32, _M32)) and crc in (0, entry.crc))
    if head[:4] != _LOCAL or local_flags != flags or method or not agree or extra_n > 4096:
        raise Refusal("archive.local_header", name)
    if archive.pread(at + 30, name_n) != f"{name}".encode():
        raise Refusal("archive.local_header", f"{name!r} has another name in its local header")
    return at + 30 + int(name_n) + int(extra_n)


def _end_of_data(archive: Archive, data_at: int, entry: Entry, flags: int, limit: int) -> int:
    """Where the next entry must start: after the data and, where flagged, its descriptor of 16 or 24 bytes."""
    end = data_at + entry.size
    if end > limit:
        raise Refusal("archive.layout", "an entry reaches into the directory")
    if flags & 8:
        tail = archive.pread(end, min(24, limit - end))
        if tail[:24] == _DESCRIPTOR + struct.pack("<IQQ", entry.crc, entry.size, entry.size):
            return end + 24
        if tail[:16] == _DESCRIPTOR + struct.pack("<III", entry.crc, entry.size & _M32, entry.size & _M32):
            return end + 16
        raise Refusal("archive.local_header", "data descriptor")
    return end
