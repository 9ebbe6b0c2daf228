"""The weights of all programs of an archive: which record holds each, and where its bytes go in ``weights.bin``.

Records are placed once, aligned, in the order of the programs' names and of the weights' use; so the same programs give
the same bytes. ``torch.export.pt2_archive`` writes a weight that two programs share once for each of them: records with
the same bytes are placed once. That is safe for weights that a program writes to as well, since every run writes to a
copy of its own.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import schema, strict_json, tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import interface, names, program

ALIGNMENT = 64
MAX_JSON = strict_json.MAX_BYTES
MAX_LIKENESS = 4
"""Records of one size and checksum that are compared with each other; an archive made of collisions gains nothing."""

WEIGHT = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,6}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of the artifact that become bytes of ``weights.bin``. ``boolean``: they may only be 0 and 1."""

    name: str
    source: int
    size: int
    crc: int
    target: int
    boolean: bool


@dataclass(slots=True)
class Storage:
    """Collects the weights of one program after the other (:meth:`add`), and then places them (:meth:`place`)."""

    archive: zip_.Archive
    boolean: dict[str, bool] = field(default_factory=dict)  # record -> whether its elements are booleans
    known: set[str] = field(default_factory=set)
    rows: list[tuple[dict[str, Any], str]] = field(default_factory=list)

    def add(self, name: str, draft: program.Draft) -> None:
        """The table of weights of program ``name``, in ``draft.document["weights"]``, complete but for the offsets.
        Raises Refusal ``weight.*``, ``tensor.*``, ``write.*``.
        """
        configs = {
            folder: _payloads(self.archive, f"data/{folder}/{name}_{folder}_config.json", f"data/{folder}/", prefix)
            for folder, prefix in (("weights", "weight_"), ("constants", "tensor_"))
        }
        for folder, config in configs.items():
            self.known.update(f"data/{folder}/{payload['path_name']}" for payload in config.values())
        table: list[tuple[dict[str, Any], str]] = []
        users: dict[str, int] = {}
        for use in draft.weights:
            folder = "weights" if use.kind != "tensor_constant" and use.persistent else "constants"
            table.append(self._use(use, configs[folder], folder, f"data/{folder}/{name}_{folder}_config.json", draft))
            users[table[-1][1]] = users.get(table[-1][1], 0) + 1
        for row, record in table:
            if row["written"] and users[record] > 1:
                raise Refusal("write.shared", row["name"])
        self.rows += table
        draft.document["weights"] = [row for row, _ in table]

    def _use(
        self, use: interface.WeightUse, config: dict[str, Any], folder: str, where: str, draft: program.Draft
    ) -> tuple[dict[str, Any], str]:
        """The row of a weight, and its record."""
        try:
            payload = config.get(use.name)
            if payload is None:
                raise Refusal("weight.missing", use.name)
            record = f"data/{folder}/{payload['path_name']}"
            tensor = tensors.stored(payload["tensor_meta"], self.archive.entries[record].size)
            _check_same(use, payload["tensor_meta"])
            if self.boolean.setdefault(record, tensor.dtype == "bool") != (tensor.dtype == "bool"):
                raise Refusal("tensor.bool", use.name)
            row = _row(use, tensor, self.archive.entries[record].size, draft)
            row["gradient"] = use.kind == "parameter" and payload["tensor_meta"]["requires_grad"]
            return row, record
        except Refusal as r:
            raise r.inside(use.name).inside("config").within(where) from None

    def place(self) -> tuple[tuple[Copy, ...], int]:
        """All copies, and the size of ``weights.bin``; fills in the offsets. Raises Refusal ``archive.unused``."""
        if unused := [n for n in self.archive.entries if WEIGHT.match(n) and n not in self.known]:
            raise Refusal("archive.unused", unused[:4])
        copies: dict[str, Copy] = {}
        alike: dict[tuple[int, int, bool], list[Copy]] = {}
        total = 0
        for record, boolean in self.boolean.items():
            entry = self.archive.entries[record]
            group = alike.setdefault((entry.size, entry.crc, boolean), [])
            same = next((c for c in group if self._equal(c, entry)), None) if len(group) <= MAX_LIKENESS else None
            if same is None:
                same = Copy(record, entry.offset, entry.size, entry.crc, total, boolean)
                group.append(same)
                total += -(-entry.size // ALIGNMENT) * ALIGNMENT
            copies[record] = same
        for row, record in self.rows:
            row["offset"] = copies[record].target
        return tuple(dict.fromkeys(copies.values())), total

    def _equal(self, copy: Copy, entry: zip_.Entry) -> bool:
        """Whether both hold the same bytes, which an equal checksum only suggests."""
        return all(
            self.archive.pread(copy.source + at, size) == self.archive.pread(entry.offset + at, size)
            for at in range(0, entry.size, zip_.CHUNK)
            if (size := min(zip_.CHUNK, entry.size - at))
        )


def document(archive: zip_.Archive, name: str, type_: str) -> dict[str, Any]:
    """A JSON record of the archive, held against the schema. Raises Refusal ``json.*``, ``schema.*``."""
    try:
        found = strict_json.parse(archive.read(name, MAX_JSON))
        if type_ == "ExportedProgram":
            schema.check_version(found)
        schema.check(found, type_)
    except Refusal as r:
        raise r.within(name) from None
    assert isinstance(found, dict)
    return found


def _payloads(archive: zip_.Archive, name: str, folder: str, prefix: str) -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = document(archive, name, "PayloadConfig")["config"]
    for key, payload in config.items():
        try:
            names.check_printable(key)
            if payload["use_pickle"] or payload["tensor_meta"] is None:
                raise Refusal("weight.pickle", key)
            path = payload["path_name"]
            if not re.match(rf"{prefix}[0-9]{{1,6}}\Z", path, re.ASCII) or folder + path not in archive.entries:
                raise Refusal("weight.missing", path)
            tensors.stored(payload["tensor_meta"], archive.entries[folder + path].size)
        except Refusal as r:
            raise r.inside(key).inside("config").within(name) from None
    return config


def _check_same(use: interface.WeightUse, stored: dict[str, Any]) -> None:
    """What the graph believes of a weight is what is stored; otherwise every shape derived from it would be a lie."""
    if any(use.meta[key] != stored[key] for key in ("dtype", "sizes")):
        raise Refusal("tensor.mismatch", use.name)


def _row(use: interface.WeightUse, tensor: tensors.Stored, size: int, draft: program.Draft) -> dict[str, Any]:
    written = use.value in draft.written
    if written and use.kind == "parameter":
        raise Refusal("write.parameter", use.name)
    return {
        "value": use.value,
        "name": use.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "stride": list(tensor.stride),
        "start": tensor.offset,
        "bytes": size,
        "written": written,
    }
