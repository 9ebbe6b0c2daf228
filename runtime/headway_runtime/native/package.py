"""The native package: a zip that ``prepare.archive`` reads, stored and in a fixed order. The same parts, the same
bytes.

native/native.json          what follows, and what it needs: see :class:`Manifest`
native/source.pt2           the artifact that was compiled, byte for byte
native/library/<name>.so    the library of a program, one for every program of the source

The source travels with its code because the inspector reads a ``.pt2`` and nothing else: names, shapes, guards and
weights of a package are checked by exactly the rules of any other artifact. A builder's signature covers the whole
file.
"""

import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex

FORMAT = 1
MANIFEST = "native.json"
SOURCE = "source.pt2"
LIBRARY = "library"
CPU = "cpu"
MAX_MANIFEST = 4 << 20
MAX_LIBRARY = 512 << 20

_ROOT = "native"
_FIELDS = {"format", "torch", "target", "device", "features", "source", "programs"}
_TEXT = re.compile(r"[A-Za-z0-9_.+-]{1,64}\Z", re.ASCII)
_PROGRAM = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z", re.ASCII)
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a package says of itself.

    ``torch``: the version whose headers and libraries it was built with. ``target`` and ``features``: the processor.
    ``source``: digest of the artifact that was compiled, ``sha256:<hex>``. ``programs``: for each, the conditions on
    its sizes that compiling added to those of the program, as JSON expressions over the program's symbols.
    """

    torch: str
    target: str
    features: tuple[str, ...]
    source: str
    programs: Mapping[str, tuple[Any, ...]]

    def to_json(self) -> bytes:
        """Canonical JSON."""
        return strict_json.dump(
            {
                "format": FORMAT,
                "torch": self.torch,
                "target": self.target,
                "device": CPU,
                "features": sorted(self.features),
                "source": self.source,
                "programs": {name: {"guards": list(guards)} for name, guards in self.programs.items()},
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_json`. Raises Refusal ``native.form`` for anything else."""
        value = strict_json.parse(data)
        if not isinstance(value, dict) or set(value) != _FIELDS or value["format"] != FORMAT or value["device"] != CPU:
            raise Refusal("native.form", f"format {FORMAT} with fields {sorted(_FIELDS)}")
        programs = value["programs"]
        if not isinstance(programs, dict) or not programs or not isinstance(value["features"], list):
            raise Refusal("native.form", "programs or features")
        for text in (value["torch"], value["target"], *value["features"]):
            if not isinstance(text, str) or not _TEXT.match(text):
                raise Refusal("native.form", text)
        if not isinstance(value["source"], str) or not _DIGEST.match(value["source"]):
            raise Refusal("native.form", "source")
        return cls(
            torch=value["torch"],
            target=value["target"],
            features=tuple(value["features"]),
            source=value["source"],
            programs={name: _guards(name, program) for name, program in programs.items()},
        )


def _guards(name: str, program: Any) -> tuple[Any, ...]:
    if not _PROGRAM.match(name) or not isinstance(program, dict) or set(program) != {"guards"}:
        raise Refusal("native.form", name)
    if not isinstance(program["guards"], list):
        raise Refusal("native.form", "guards").inside(name)
    try:
        for guard in program["guards"]:
            ex.from_json(guard)
    except ValueError as e:
        raise Refusal("native.form", e).inside("guards").inside(name) from None
    return tuple(program["guards"])


def write(path: Path, manifest: Manifest, *, source: Path, libraries: Mapping[str, Path]) -> None:
    """Write a package; ``libraries`` by program name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        out.writestr(_entry(MANIFEST), manifest.to_json())
        for name, file in [(SOURCE, source), *((library_record(n), libraries[n]) for n in sorted(libraries))]:
            entry = _entry(name)
            entry.file_size = file.stat().st_size
            with file.open("rb") as data, out.open(entry, "w") as record:
                shutil.copyfileobj(data, record, zip_.CHUNK)


def library_record(program: str) -> str:
    """Name of a program's library in a package, and of its file in a prepared directory."""
    return f"{LIBRARY}/{program}.so"


def manifest_file(prepared: Path) -> Path:
    """Where the manifest stands in a prepared directory; missing when it holds no native code."""
    return prepared / _ROOT / MANIFEST


def library_file(prepared: Path, program: str) -> Path:
    """Where a program's library stands in a prepared directory. Nothing else may: torch reads files beside a library
    whose names begin like its own.
    """
    return prepared / _ROOT / library_record(program)


def is_package(archive: zip_.Archive) -> bool:
    """Whether the archive presents itself as a native package."""
    return MANIFEST in archive.entries


def read(archive: zip_.Archive) -> Manifest:
    """The manifest of a package that has exactly the records it must have. Raises Refusal ``native.form``."""
    manifest = Manifest.parse(archive.read(MANIFEST, MAX_MANIFEST))
    records = {MANIFEST, SOURCE, *map(library_record, manifest.programs)}
    if archive.entries.keys() != records:
        raise Refusal("native.form", f"records {sorted(archive.entries.keys() ^ records)[:4]}")
    return manifest


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{_ROOT}/{name}", _EPOCH)
    entry.external_attr = 0o644 << 16
    return entry
