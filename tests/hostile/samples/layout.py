"""The zip file: names, headers, sizes, order."""

# a table: one sample a line

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, Entries
from tests.hostile.samples.registry import (
    Build,
    add,
    all_entries,
    entry,
    sample,
)


@sample("archive.name")
def two_entries_with_one_name(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, [(MODEL, b"{}"), *entries.items()])


@sample("archive.name")
def two_entries_that_differ_in_case(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, [(MODEL.upper(), b"{}"), *entries.items()])


@sample("archive.name")
def an_entry_that_leaves_the_folder(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "../../escape": b"x"})


@sample("archive.name")
def a_second_root_folder(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, [*all_entries(entries), ar.Entry("n/extra/note", b"x")])


def with_root(root: str) -> Build:
    return lambda out, entries, marker: ar.write(out, entries, root=root)


for _number, _root in enumerate(("..", ".", "a\\b", "a\nb", "\u202em", "x" * 256)):
    add("archive.name", f"a_root_that_is_no_plain_file_name_{_number}", with_root(_root))
add("archive.name", "a_root_in_utf8_that_is_not_said_to_be", with_root("mod\u00e8le"))


@sample("archive.name")
def a_name_with_a_zero_byte(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "extra/a\0b": b"x"})


@sample("archive.local_header")
def another_name_in_the_local_header(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].local_name = items[0].local_name.swapcase()
    return ar.raw(out, items)


@sample("archive.layout")
def bytes_between_two_entries(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[1].gap = b"hidden"
    return ar.raw(out, items)


@sample("archive.layout")
def fewer_entries_counted_than_listed(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    return ar.raw(out, items, count=len(items) - 1)


@sample("archive.end_record")
def a_comment_after_the_directory(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, all_entries(entries), comment=b"hello")


@sample("archive.end_record")
def bytes_after_the_end(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.raw(out, all_entries(entries), trailing=b"PK\5\6 and more, longer than an end record")


@sample("archive.entry")
def a_deflated_weight(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    packer = zlib.compressobj(wbits=-15)
    items[0].data = bytes(64 << 20)
    items[0].packed = packer.compress(items[0].data) + packer.flush()
    items[0].crc = zlib.crc32(items[0].data)
    return ar.raw(out, items)


@sample("archive.entry")
def an_encrypted_entry(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].flags = 1
    return ar.raw(out, items)


@sample("archive.entry")
def an_entry_that_is_a_link(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    items[0].attributes = 0o120777 << 16
    return ar.raw(out, items)


@sample("archive.crc")
def a_program_changed_after_it_was_saved(out: Path, entries: Entries, marker: Path) -> Path:
    items = all_entries(entries)
    program = next(e for e in items if e.name.endswith(b"model.json"))
    program.data = program.data.replace(b"relu", b"relv")
    return ar.raw(out, items)


# What zip readers disagree on, or what could hide bytes.
SECOND_NAME = struct.pack("<HHBI", 0x7075, 5 + 12, 1, 0) + b"m/other.json"
PADDING = struct.pack("<2sH", b"FB", 6)

entry("archive.entry", "an_extra_field_with_a_second_name", lambda items: setattr(items[0], "extra", SECOND_NAME))
entry("archive.entry", "a_folder_as_an_entry", lambda items: setattr(items[0], "attributes", 0x10))
entry("archive.entry", "a_device_as_an_entry", lambda items: setattr(items[0], "attributes", 0o020666 << 16))
entry("archive.entry", "a_patch_of_another_entry", lambda items: setattr(items[0], "flags", 0x20))
entry("archive.entry", "names_that_are_encrypted", lambda items: setattr(items[0], "flags", 0x2000))
entry(
    "archive.local_header",
    "data_hidden_in_a_local_extra_field",
    lambda items: setattr(items[0], "local_extra", PADDING + b"hidden"),
)
entry(
    "archive.local_header",
    "a_second_name_in_a_local_extra_field",
    lambda items: setattr(items[0], "local_extra", SECOND_NAME),
)
entry(
    "archive.local_header",
    "a_size_of_64_bits_that_lies",
    lambda items: setattr(items[0], "local_extra", struct.pack("<HHQQ", 1, 16, 1 << 40, 1 << 40)),
)
entry(
    "archive.local_header", "an_entry_without_the_descriptor_it_promises", lambda items: setattr(items[0], "flags", 8)
)
entry("archive.layout", "two_entries_over_the_same_bytes", lambda items: setattr(items[1], "at", 0))
entry("archive.layout", "an_entry_that_starts_inside_another", lambda items: setattr(items[1], "at", 40))
entry("archive.layout", "an_entry_larger_than_the_file", lambda items: setattr(items[-1], "size", 1 << 30))
entry("archive.zip64", "a_large_size_without_its_field", lambda items: setattr(items[0], "size", 0xFFFFFFFF))
entry(
    "archive.crc",
    "a_header_record_with_another_checksum",
    lambda items: [setattr(i, "crc", 1) for i in items if i.name.endswith(b"archive_format")],
)


def _named(name: bytes) -> Callable[[list[ar.Entry]], None]:
    return lambda items: items.append(_entry(name))


def _entry(name: bytes) -> ar.Entry:
    made = ar.Entry("x", b"x")
    made.name = made.local_name = name
    return made


NAMES = [
    b"/etc/x", b"m", b"m/", b"m//x", b"m/extra/", b"m/extra/\xc3\xa9", b"m/extra/a b", b"m/extra\\..\\x", b"",
    b"m/a/b/c/d/e/f/g", b"m/extra/" + b"x" * 129, b"m/./byteorder", b"m/x/../byteorder", b"\xff\xfe/x",
    b"m/extra/con:x", b"m/BYTEORDER",
]  # fmt: skip
for _number, _name in enumerate(NAMES):
    entry("archive.name", f"a_name_that_another_reader_reads_otherwise_{_number}", _named(_name))


@sample("archive.local_header")
def bytes_before_the_first_entry(out: Path, entries: Entries, marker: Path) -> Path:
    data = ar.write(out, entries).read_bytes()
    (at,) = struct.unpack("<I", data[-6:-2])
    out.write_bytes(b"#!/bin/sh\n" + data[:-6] + struct.pack("<IH", at + 10, 0))
    return out


@sample("archive.layout")
def a_directory_in_another_order(out: Path, entries: Entries, marker: Path) -> Path:
    data = ar.write(out, entries).read_bytes()
    size, at = struct.unpack("<II", data[-10:-2])
    headers = [b"PK\1\2" + part for part in data[at : at + size].split(b"PK\1\2")[1:]]
    out.write_bytes(data[:at] + b"".join(reversed(headers)) + data[-22:])
    return out


@sample("archive.end_record")
def more_entries_than_allowed(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, **{f"extra/{i}": b"" for i in range(20_001)}})


@sample("archive.end_record")
def an_archive_of_two_volumes(out: Path, entries: Entries, marker: Path) -> Path:
    data = bytearray(ar.write(out, entries).read_bytes())
    data[-18] = 1
    out.write_bytes(data)
    return out


def _with_zip64(change: Callable[[list[int]], None]) -> Build:
    """A 64-bit end record, its numbers altered: size, entries here, entries, size and place of the directory, place of
    the record.
    """

    def build(out: Path, entries: Entries, marker: Path) -> Path:
        data = ar.write(out, entries).read_bytes()
        _, _, _, count, size, at, _ = struct.unpack("<HHHHIIH", data[-18:])
        numbers = [44, count, count, size, at, at + size]
        change(numbers)
        end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", numbers[0], 45, 45, 0, 0, *numbers[1:5])
        locator = b"PK\6\7" + struct.pack("<IQI", 0, numbers[5], 1)
        out.write_bytes(data[:-22] + end + locator + data[-22:])
        return out

    return build


add(
    "archive.zip64",
    "a_64_bit_record_that_counts_fewer_entries",
    _with_zip64(lambda n: n.__setitem__(slice(1, 3), [1, 1])),
)
add("archive.zip64", "a_64_bit_record_of_another_directory", _with_zip64(lambda n: n.__setitem__(4, 0)))
add("archive.zip64", "a_64_bit_record_that_is_elsewhere", _with_zip64(lambda n: n.__setitem__(5, 0)))
add("archive.zip64", "a_64_bit_record_with_room_for_more", _with_zip64(lambda n: n.__setitem__(0, 1 << 20)))
