"""What is no archive: other files, and no files."""

import os
from pathlib import Path

from tests.hostile import archives as ar
from tests.hostile.archives import Entries
from tests.hostile.samples.registry import sample


@sample("archive.not_zip")
def a_pickle_instead_of_an_archive(out: Path, entries: Entries, marker: Path) -> Path:
    out.write_bytes(b"\x80\x02c__builtin__\neval\n" + b"." * 64)
    return out


@sample("archive.file")
def a_link_instead_of_a_file(out: Path, entries: Entries, marker: Path) -> Path:
    out.symlink_to("/etc/passwd")
    return out


@sample("archive.file")
def a_pipe_instead_of_a_file(out: Path, entries: Entries, marker: Path) -> Path:
    os.mkfifo(out)
    return out


@sample("archive.file")
def a_folder_instead_of_a_file(out: Path, entries: Entries, marker: Path) -> Path:
    out.mkdir()
    return out


@sample("archive.not_zip")
def an_empty_file(out: Path, entries: Entries, marker: Path) -> Path:
    out.touch()
    return out


@sample("archive.end_record")
def half_an_archive(out: Path, entries: Entries, marker: Path) -> Path:
    ar.write(out, entries)
    out.write_bytes(out.read_bytes()[: out.stat().st_size // 2])
    return out
