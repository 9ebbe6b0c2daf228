"""A strict reader of the zip layout that ``torch.export.save`` writes.

Zip readers disagree (duplicate names, case, entry counts, trailing bytes, sizes that differ between the two copies of
a header): a file that two of them read differently shows a checker one program and a loader another. So everything
ambiguous is refused: one end record in the last 22 bytes, stored entries only, in order, with no gap and no overlap,
both headers equal, names ASCII and unique ignoring case, one root folder. The folder's own name is that of the file it
was saved to, "my model" or "modèle": it is equal in all entries and used for nothing. Nothing is mapped or extracted;
entries are read by offset from one open file.
"""

import os
import stat
import struct
import zlib
from dataclasses import dataclass, field
from typing import Self

from headway_runtime.prepare.container import zipformat as zf
from headway_runtime.prepare.container.zipformat import Entry as Entry
from headway_runtime.prepare.errors import Refusal

MAX_ENTRIES = 20_000
MAX_CENTRAL = 16 << 20
CHUNK = 4 << 20


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
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait
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
    if b"/constants.pkl" in central and b"/code/" in central and b"/archive_format" not in central:
        raise Refusal("archive.torchscript")  # known before its entries are read, of which torch compresses some
    position, expected, root = 0, 0, None
    seen: set[str] = set()
    for _ in range(count):
        entry, name, header_at, position, flags = zf.central_header(central, position)
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
        raise Refusal("archive.not_zip", f"it has {archive.size} bytes")
    tail_size = min(archive.size, 22 + 20 + 56)
    tail = archive.pread(archive.size - tail_size, tail_size)
    if tail[-22:-18] != zf.END:
        if _looks_like_zip(archive):
            raise Refusal("archive.end_record", "the last 22 bytes are no end record")
        raise Refusal("archive.not_zip", _other_kind(archive.pread(0, 16)))
    disk, disk_c, here, count, size, at, comment = struct.unpack("<HHHHIIH", tail[-18:])
    if disk or disk_c or comment or here != count:
        raise Refusal("archive.end_record", "several disks, or a comment")
    end = archive.size - 22
    if tail[-42:-38] == zf.LOCATOR:
        if len(tail) < 98 or tail[:4] != zf.END64:
            raise Refusal("archive.zip64", "end record and locator do not touch")
        size64, _, _, disk, disk_c, here64, count64, csize, cat = struct.unpack("<QHHIIQQQQ", tail[4:56])
        disk_l, at64, disks = struct.unpack("<IQI", tail[-38:-22])
        agree = count in (count64, zf.M16) and size in (csize, zf.M32) and at in (cat, zf.M32)
        if size64 != 44 or disk or disk_c or disk_l or disks != 1 or here64 != count64 or at64 != end - 76 or not agree:
            raise Refusal("archive.zip64", "the two end records disagree")
        count, size, at, end = count64, csize, cat, end - 76
    if count > MAX_ENTRIES or size > MAX_CENTRAL or at + size != end:
        raise Refusal("archive.end_record", f"{count} entries, directory of {size} bytes at {at}, ends at {end}")
    return count, at, size


def _other_kind(first: bytes) -> str:
    """What a file is by its first 16 bytes, in words."""
    if first[0] == 0x80 and first[1] <= 5:
        return "it begins as a pickle does, such as torch.save wrote before torch 1.6"
    if first[:4] == b"GGUF":
        return "it is a GGUF file: headway export --task generate FILE.gguf"
    if first[8:9] == b"{" and first[5:8] == b"\0\0\0":
        return "it is a safetensors file, which holds weights without a program"
    if first.isascii() and all(chr(byte).isprintable() or byte in b"\t\r\n" for byte in first):
        return "it is text"
    return f"it begins with the bytes {first[:8].hex(' ')}"


def _looks_like_zip(archive: Archive) -> bool:
    return archive.pread(0, 4) == zf.LOCAL


def _local_header(archive: Archive, at: int, name: str, entry: Entry, flags: int) -> int:
    """Offset of the data; the local header must say what the central one said (or leave sizes to the descriptor)."""
    head = archive.pread(at, 30)
    local_flags, method = struct.unpack_from("<HH", head, 6)
    crc, packed, size, name_n, extra_n = struct.unpack_from("<IIIHH", head, 14)
    agree = (packed, size) in ((entry.size, entry.size), (zf.M32, zf.M32)) and crc == entry.crc
    agree = agree or bool(
        flags & zf.HAS_DESCRIPTOR and (packed, size) in ((0, 0), (zf.M32, zf.M32)) and crc in (0, entry.crc)
    )
    if head[:4] != zf.LOCAL or local_flags != flags or method or not agree or extra_n > 4096:
        raise Refusal("archive.local_header", name)
    if archive.pread(at + 30, name_n) != name.encode():
        raise Refusal("archive.local_header", f"{name!r} has another name in its local header")
    if not zf.plain_extra(archive.pread(at + 30 + name_n, extra_n), entry.size, at):
        raise Refusal("archive.local_header", f"{name!r} has an extra field that torch does not write")
    return at + 30 + int(name_n) + int(extra_n)


def _end_of_data(archive: Archive, data_at: int, entry: Entry, flags: int, limit: int) -> int:
    """Where the next entry must start: after the data and, where flagged, its descriptor of 16 or 24 bytes."""
    end = data_at + entry.size
    if end > limit:
        raise Refusal("archive.layout", "an entry reaches into the directory")
    if flags & zf.HAS_DESCRIPTOR:
        tail = archive.pread(end, min(24, limit - end))
        if tail[:24] == zf.DESCRIPTOR + struct.pack("<IQQ", entry.crc, entry.size, entry.size):
            return end + 24
        if entry.size <= zf.M32 and tail[:16] == zf.DESCRIPTOR + struct.pack("<III", entry.crc, entry.size, entry.size):
            return end + 16
        raise Refusal("archive.local_header", "data descriptor")
    return end
