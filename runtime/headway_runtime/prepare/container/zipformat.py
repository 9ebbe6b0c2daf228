"""The structures of a zip file, from bytes: directory entries, extra fields, names. Pure; ``archive`` reads the file.

Only what torch's writer writes is accepted: nothing compressed, no second names in extra fields, no room to hide
anything.
"""

import re
import stat
import struct
from dataclasses import dataclass

from headway_runtime.prepare.errors import Refusal

MAX_ROOT = 255  # bytes
END, END64, LOCATOR, CENTRAL, LOCAL, DESCRIPTOR = (
    b"PK\5\6",
    b"PK\6\6",
    b"PK\6\7",
    b"PK\1\2",
    b"PK\3\4",
    b"PK\7\x08",
)
M32, M16 = 0xFFFFFFFF, 0xFFFF
HAS_DESCRIPTOR = 0x0008

_UTF8 = 0x0800
_FLAGS = HAS_DESCRIPTOR | _UTF8
_DIRECTORY = 0x10  # MS-DOS attribute
_SEGMENT = r"[A-Za-z0-9_.@-]{1,128}"
_NAME = re.compile(rf"{_SEGMENT}(/{_SEGMENT}){{0,5}}\Z", re.ASCII)  # within the root folder


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an entry's bytes lie in the file, how many, and their CRC-32."""

    offset: int
    size: int
    crc: int


def central_header(central: bytes, at: int) -> tuple[Entry, str, int, int, int]:
    """(entry without offset, name, offset of the local header, where the next header starts, flags)."""
    if at + 46 > len(central) or central[at : at + 4] != CENTRAL:
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
        or stat.S_IFMT(external >> 16) not in (0, stat.S_IFREG)
        or external & _DIRECTORY
    ):
        raise Refusal("archive.entry", "compressed, encrypted, commented, split, a link or a folder")
    size, packed, header_at = _zip64_sizes(extra, size, packed, header_at)
    if size != packed:
        raise Refusal("archive.entry", "stored and real size differ")
    return Entry(0, size, crc), _name(central[at + 46 : name_end], flags), header_at, name_end + extra_n, flags


def _zip64_sizes(extra: bytes, size: int, packed: int, header_at: int) -> tuple[int, int, int]:
    """Values too large for 32 bits stand in the extra field, in this order; nothing else may stand there (another field
    could give the entry a second name).
    """
    given = (size, packed, header_at)
    count = given.count(M32)
    if extra and not count:
        raise Refusal("archive.entry", "an extra field")
    if count and (extra[:4], len(extra)) != (_zip64_head(count), 4 + 8 * count):
        raise Refusal("archive.zip64", "an extra field that is not the large sizes of this entry")
    large = iter(struct.unpack_from(f"<{count}Q", extra, 4) if count else ())
    one, two, three = (next(large) if value == M32 else value for value in given)
    return one, two, three


def _zip64_head(count: int) -> bytes:
    return struct.pack("<HH", 1, 8 * count)


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


def plain_extra(extra: bytes, size: int, at: int) -> bool:
    """Sizes and offset once more in 64 bits (zero where left to the descriptor), then torch's padding: FB, only Z."""
    for count in (1, 2, 3):
        if extra[:4] == _zip64_head(count) and len(extra) >= 4 + 8 * count:
            if not {0, size, at}.issuperset(struct.unpack_from(f"<{count}Q", extra, 4)):
                return False
            extra = extra[4 + 8 * count :]
            break
    padding = max(0, len(extra) - 4)
    return not extra or extra == b"FB" + struct.pack("<H", padding) + b"Z" * padding
