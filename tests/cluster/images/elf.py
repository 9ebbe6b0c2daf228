"""Read what a shared library (ELF, 64 bit, little endian) asks for and offers; write one that only offers names.

Layouts: the System V ABI, chapters 4 and 5, and the Linux Standard Base, "Symbol Versioning".
"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNAMIC = struct.Struct("<qQ")
DYNSYM, DYNAMIC_SECTION, VERSYM, VERNEED = 11, 6, 0x6FFFFFFF, 0x6FFFFFFE
NEEDED = 1
PAGE = 0x1000


@dataclass(frozen=True, slots=True)
class Asked:
    """An undefined symbol; `library` and `version` are empty where the symbol is not versioned."""

    name: str
    library: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    needed: frozenset[str]
    defined: frozenset[str]
    undefined: frozenset[Asked]


def read(path: Path) -> Library:
    """The dynamic symbols and needed libraries of a file. Raises ValueError if it is no 64-bit ELF file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        sections = [SECTION.unpack_from(data, start + size * number) for number in range(count)]
        by_type = {section[1]: section for section in sections}

        def text_of(section: tuple[int, ...]) -> Iterator[bytes]:
            _, _, _, _, offset, length, link, *_ = section
            yield data[offset : offset + length]
            _, _, _, _, offset, length, *_ = sections[link]
            yield data[offset : offset + length]

        entries, names = text_of(by_type[DYNAMIC_SECTION])
        needed = {_name(names, value) for tag, value in DYNAMIC.iter_unpack(entries) if tag == NEEDED}
        versions = _versions(*text_of(by_type[VERNEED])) if VERNEED in by_type else {}
        table, names = text_of(by_type[DYNSYM])
        indices = [0] * (len(table) // SYMBOL.size)
        if VERSYM in by_type:
            indices = [index for (index,) in struct.iter_unpack("<H", next(text_of(by_type[VERSYM])))]
    defined, undefined = set(), set()
    for (name, _, _, section, _, _), index in zip(SYMBOL.iter_unpack(table), indices, strict=True):
        if section:
            defined.add(_name(names, name))
        elif name:
            undefined.add(Asked(_name(names, name), *versions.get(index & 0x7FFF, ())))
    return Library(frozenset(needed), frozenset(defined), frozenset(undefined))


def _name(names: bytes, offset: int) -> str:
    return names[offset : names.index(b"\0", offset)].decode()


def _versions(table: bytes, names: bytes) -> dict[int, tuple[str, str]]:
    """(library, version) by the index that a symbol's entry in the version table has."""
    found, at = {}, 0
    while True:
        _, count, library, first, following = struct.unpack_from("<HHIII", table, at)
        entry = at + first
        for _ in range(count):
            _, _, index, version, step = struct.unpack_from("<IHHII", table, entry)
            found[index] = _name(names, library), _name(names, version)
            entry += step
        if not following:
            return found
        at += following


def stub(library: str, symbols: Mapping[str, str]) -> bytes:
    """A shared library of this name that defines every symbol (name: version, or "") as a function that aborts."""
    versions = sorted(set(symbols.values()) - {""})
    strings = bytearray(b"\0")
    place: dict[str, int] = {}
    for text in (library, *versions, *symbols):
        place.setdefault(text, len(strings))
        strings += text.encode() + b"\0"
    table_size = SYMBOL.size * (len(symbols) + 1)
    hashes = _hash_table(list(symbols))
    version_indices = struct.pack(f"<{len(symbols) + 1}H", 0, *(_index(versions, v) for v in symbols.values()))
    definitions = _definitions(library, versions, place) if versions else b""
    parts = [hashes, b"\0" * table_size, bytes(strings), version_indices, definitions, b"\x0f\x0b"]  # ud2
    offsets, end = [], 64 + 4 * 56
    for part in parts:
        end = (end + 7) & ~7
        offsets.append(end)
        end += len(part)
    code = offsets[5]
    parts[1] = bytes(SYMBOL.size) + b"".join(SYMBOL.pack(place[name], 0x12, 0, 1, code, 2) for name in symbols)
    dynamic = [(14, place[library]), (4, offsets[0]), (6, offsets[1]), (5, offsets[2]), (10, len(strings)), (11, 24)]
    if versions:
        dynamic += [(0x6FFFFFF0, offsets[3]), (0x6FFFFFFC, offsets[4]), (0x6FFFFFFD, len(versions) + 1)]
    table = b"".join(DYNAMIC.pack(*entry) for entry in (*dynamic, (0, 0)))
    at = (end + PAGE - 1) & ~(PAGE - 1)  # a page of its own: the loader writes to it
    image = bytearray(at) + table
    image[: 64 + 4 * 56] = _headers(code_end=end, dynamic=at, dynamic_size=len(table))
    for offset, part in zip(offsets, parts, strict=True):
        image[offset : offset + len(part)] = part
    return bytes(image)


def _index(versions: list[str], version: str) -> int:
    """1 is the library itself: its unversioned symbols; its versions follow."""
    return versions.index(version) + 2 if version else 1


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: list[str]) -> bytes:
    size = max(1, len(names))
    buckets, chains = [0] * size, [0] * (len(names) + 1)
    for number, name in enumerate(names, start=1):
        bucket = _hash(name) % size
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<II{size}I{len(chains)}I", size, len(chains), *buckets, *chains)


def _definitions(library: str, versions: list[str], place: Mapping[str, int]) -> bytes:
    entries = [(1, 1, library), *((0, number, version) for number, version in enumerate(versions, start=2))]
    last = len(versions) + 1
    return b"".join(
        struct.pack("<HHHHIII", 1, flags, index, 1, _hash(name), 20, 28 if index < last else 0)
        + struct.pack("<II", place[name], 0)
        for flags, index, name in entries
    )


def _headers(*, code_end: int, dynamic: int, dynamic_size: int) -> bytes:
    """The ELF header of a shared object for x86-64 and its segments: code, dynamic (twice), no executable stack."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    read_execute, read_write = 5, 6
    segments = (
        (1, read_execute, 0, 0, 0, code_end, code_end, PAGE),
        (1, read_write, dynamic, dynamic, dynamic, dynamic_size, dynamic_size, PAGE),
        (2, read_write, dynamic, dynamic, dynamic, dynamic_size, dynamic_size, 8),
        (0x6474E551, read_write, 0, 0, 0, 0, 0, 16),
    )
    return header + b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments)
