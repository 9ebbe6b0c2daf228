"""Programs of other ``.pt2`` files into one archive: each keeps its bytes, under another name.

Only names change: those of the program's records, and the numbers of its weights, which must not be those of the first.
The files are inspected before, and the whole is afterwards, as everything that export writes.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway_runtime.export import rewrite
from headway_runtime.export.errors import ExportError
from headway_runtime.prepare import programs
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.storage import MAX_JSON, WEIGHT

_NUMBER = re.compile(r"(?P<head>.*_)(?P<number>[0-9]+)\Z")


def add_programs(file: Path, others: Mapping[str, Path]) -> None:
    """Add the programs of other files to ``file``, each under its key. Raises ExportError, Refusal."""
    records: dict[str, bytes] = {}
    taken = _counts(file)
    for name, source in others.items():
        records |= _records_of(source, name, taken)
        taken = {folder: count + taken[folder] for folder, count in _counts(source).items()}
    if records:
        whole = file.with_name(f"{file.name}.whole")
        rewrite.with_records(file, whole, records)
        whole.replace(file)


def _records_of(source: Path, name: str, taken: Mapping[str, int]) -> dict[str, bytes]:
    """The records of a file's program, called ``name``. ``taken``: by folder, numbers of weights below this one are
    in use.
    """
    with zip_.open_archive(source) as archive:
        models = [n.removeprefix("models/").removesuffix(".json") for n in archive.entries if n.startswith("models/")]
        found = programs.default(models)
        if found is None:
            raise ExportError(f"{source} holds the programs {', '.join(sorted(models))}; give a file of one")
        return dict(_renamed(archive, found, name, taken))


def _counts(source: Path) -> dict[str, int]:
    """By folder (``weights``, ``constants``): the numbers of a file's weights are below this one."""
    found = {"weights": 0, "constants": 0}
    with zip_.open_archive(source) as archive:
        for entry in archive.entries:
            if WEIGHT.match(entry):
                folder = entry.split("/")[1]
                found[folder] = max(found[folder], int(_parts(entry)[1]) + 1)
    return found


def _renamed(archive: zip_.Archive, found: str, name: str, taken: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    own = {
        f"models/{found}.json": f"models/{name}.json",
        f"data/sample_inputs/{found}.pt": f"data/sample_inputs/{name}.pt",
        record.NAME: programs.record(name, [programs.DEFAULT, name]),
    }
    for old, new in own.items():
        if old in archive.entries:
            yield new, archive.read(old, archive.entries[old].size)
    for folder in ("weights", "constants"):
        where = f"data/{folder}/{found}_{folder}_config.json"
        document: dict[str, Any] = strict_json.parse(archive.read(where, MAX_JSON))
        for payload in document["config"].values():
            payload["path_name"] = _shifted(payload["path_name"], taken[folder])
        yield f"data/{folder}/{name}_{folder}_config.json", strict_json.dump(document)
    for entry in archive.entries:
        if WEIGHT.match(entry):
            yield _shifted(entry, taken[entry.split("/")[1]]), archive.read(entry, archive.entries[entry].size)


def _shifted(name: str, by: int) -> str:
    head, number = _parts(name)
    return f"{head}{int(number) + by}"


def _parts(name: str) -> tuple[str, str]:
    match = _NUMBER.match(name)
    if match is None:
        raise ExportError(f"a weight is called {name!r}, which torch does not write")
    return match["head"], match["number"]
