"""The whole inspection of one file: archive, records, program, weights. What comes out is made only of what was
checked.

:func:`inspect` reads JSON and headers, never a weight's bytes: those are only copied (by ``repack``), after every
description of them was held against the size of its record.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare import archive as zip_
from headway_runtime.prepare import interface, names, program, record, samples, schema, strict_json, tensors
from headway_runtime.prepare.errors import Refusal

ALIGNMENT = 64
MAX_JSON = strict_json.MAX_BYTES
TORCH_VERSIONS = {"2.13", "2.14", "2.15"}

_WEIGHT = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,6}\Z", re.ASCII)
_MODEL = r"[A-Za-z0-9_-]{1,64}"
_RECORDS = re.compile(
    rf"(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|models/{_MODEL}\.json|"
    rf"data/weights/({_MODEL}_weights_config\.json|weight_[0-9]{{1,6}})|"
    rf"data/constants/({_MODEL}_constants_config\.json|tensor_[0-9]{{1,6}})|"
    rf"data/sample_inputs/{_MODEL}\.pt|extra/[A-Za-z0-9_.-]{{1,128}})\Z",
    re.ASCII,
)
_HEADERS = {
    "archive_format": {b"pt2"},
    "archive_version": {b"0"},
    "byteorder": {b"little"},
    ".data/version": {b"3\n", b"6\n", b"10\n"},
}
_LEGACY = {"serialized_exported_program.json", "serialized_state_dict.pt", "version"}
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}[A-Za-z0-9.+_-]{0,48}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of the artifact that become bytes of ``weights.bin``. ``boolean``: they may only be 0 and 1."""

    name: str
    source: int
    size: int
    crc: int
    target: int
    boolean: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything ``repack`` and the report need. ``document`` is ``program.json``."""

    document: dict[str, Any]
    copies: tuple[Copy, ...]
    weights_bytes: int
    samples: tuple[dict[str, Any], ...]
    operators: dict[str, int]
    torch: str


def inspect(path: str) -> Inspection:
    """Check a file. Raises Refusal; any other failure inside is turned into one (fail closed)."""
    try:
        with zip_.open_archive(path) as archive:
            return _inspect(archive)
    except (
        KeyError,
        IndexError,
        AttributeError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
        StopIteration,
    ) as e:
        raise Refusal("inspector.malformed", f"{type(e).__name__}: {e}") from e
    except MemoryError as e:
        raise Refusal("inspector.limits", "memory") from e


def _inspect(archive: zip_.Archive) -> Inspection:
    model = _check_records(archive)
    document = _document(archive, f"models/{model}.json", "ExportedProgram")
    _check_versions(document, f"models/{model}.json")
    try:
        draft = program.build(document)
    except Refusal as r:
        raise r.within(f"models/{model}.json") from None
    _check_unique(draft.document["inputs"], "input")
    copies, total = _weights(archive, model, draft)
    samples.check(archive, f"data/sample_inputs/{model}.pt")
    extra = record.Record()
    if record.NAME in archive.entries:
        try:
            extra = record.parse(archive.read(record.NAME, record.MAX_BYTES))
            _apply(extra, draft.document)
        except Refusal as r:
            raise r.within(record.NAME) from None
    _check_unique(draft.document["outputs"], "output")
    torch_version = str(draft.document["torch"]).partition("+")[0]
    draft.document["torch"] = torch_version
    return Inspection(draft.document, copies, total, extra.samples, draft.operators, torch_version)


def _check_unique(tensors_: list[dict[str, Any]], what: str) -> None:
    """A client names tensors: with ``{"a": {"b": …}, "a.b": …}`` it could only name one of two."""
    seen: set[str] = set()
    for tensor in tensors_:
        if tensor["name"] in seen:
            raise Refusal("name.twice", f"{what} {tensor['name']!r}")
        seen.add(tensor["name"])


def _check_records(archive: zip_.Archive) -> str:
    """Only records of a plain export, each header as it must be. Returns the program's name."""
    if archive.entries.keys() & _LEGACY and "archive_format" not in archive.entries:
        raise Refusal("archive.legacy")
    for name in archive.entries:
        if not _RECORDS.match(name):
            raise Refusal("archive.record", name)
    for name, accepted in _HEADERS.items():
        if name not in archive.entries:
            raise Refusal("archive.missing", name)
        if archive.read(name, 64) not in accepted:
            raise Refusal("archive.header").within(name)
    models = [n.removeprefix("models/").removesuffix(".json") for n in archive.entries if n.startswith("models/")]
    if len(models) != 1:
        raise Refusal("archive.programs", f"{len(models)} programs: {models[:4]}")
    model = models[0]
    own = {
        f"data/weights/{model}_weights_config.json",
        f"data/constants/{model}_constants_config.json",
        f"data/sample_inputs/{model}.pt",
    }
    for name in own - archive.entries.keys():
        raise Refusal("archive.missing", name)
    for name in archive.entries:
        if name.startswith("data/") and name not in own and not _WEIGHT.match(name):
            raise Refusal("archive.record", name)
    return model


def _document(archive: zip_.Archive, name: str, type_: str) -> dict[str, Any]:
    try:
        document = strict_json.parse(archive.read(name, MAX_JSON))
        if type_ == "ExportedProgram":
            _check_schema_version(document)
        schema.check(document, type_)
    except Refusal as r:
        raise r.within(name) from None
    assert isinstance(document, dict)
    return document


def _check_schema_version(document: Any) -> None:
    """Before the schema itself: a newer document should be called newer, not malformed."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    major, minor = (version.get("major"), version.get("minor")) if isinstance(version, dict) else (None, None)
    if major != schema.SCHEMA_MAJOR or type(minor) is not int or not 0 <= minor <= schema.SCHEMA_MINOR_MAX:
        raise Refusal(
            "schema.version",
            f"schema {major}.{minor}, this Headway reads {schema.SCHEMA_MAJOR}.{schema.SCHEMA_MINOR_MAX}",
        )


def _check_versions(document: dict[str, Any], name: str) -> None:
    version = document.get("torch_version", "")
    if not _VERSION.match(version) or ".".join(version.split(".")[:2]) not in TORCH_VERSIONS:
        raise Refusal("schema.torch", f"exported with torch {version}").within(name)
    if not set(document.get("verifiers", [])) <= {"TRAINING", "ATEN", ""}:
        raise Refusal("schema.value", document["verifiers"]).inside("verifiers").within(name)
    if any(not re.match(r"[a-z_]{1,32}\Z", key) for key in document["opset_version"]):
        raise Refusal("schema.value", sorted(document["opset_version"])[:3]).inside("opset_version").within(name)
    module = document["graph_module"]
    if module.get("treespec_namedtuple_fields"):
        raise Refusal("tree.type", "a named tuple").within(name)
    if set(module.get("metadata", {})) - {"custom"}:
        raise (
            Refusal("schema.unknown", sorted(module["metadata"])).inside("metadata").inside("graph_module").within(name)
        )


def _weights(archive: zip_.Archive, model: str, draft: program.Draft) -> tuple[tuple[Copy, ...], int]:
    """Table of weights in ``draft.document["weights"]``, and which bytes to copy where: each record once, aligned."""
    configs = {
        prefix: _payloads(archive, f"data/{folder}/{model}_{folder}_config.json", f"data/{folder}/", prefix)
        for folder, prefix in (("weights", "weight_"), ("constants", "tensor_"))
    }
    used = {
        entry["path_name"] and f"data/{folder}/{entry['path_name']}"
        for folder, prefix in (("weights", "weight_"), ("constants", "tensor_"))
        for entry in configs[prefix].values()
    }
    if unused := [n for n in archive.entries if _WEIGHT.match(n) and n not in used]:
        raise Refusal("archive.unused", unused[:4])
    copies: dict[str, Copy] = {}
    table: list[dict[str, Any]] = []
    users: dict[str, int] = {}
    total = 0
    for use in draft.weights:
        folder, prefix = (
            ("weights", "weight_") if use.kind != "tensor_constant" and use.persistent else ("constants", "tensor_")
        )
        payload = configs[prefix].get(use.name)
        if payload is None:
            raise Refusal("weight.missing", use.name)
        name = f"data/{folder}/{payload['path_name']}"
        entry = archive.entries[name]
        tensor = tensors.stored(payload["tensor_meta"], entry.size)
        _check_same(use, payload["tensor_meta"])
        if name not in copies:
            copies[name] = Copy(name, entry.offset, entry.size, entry.crc, total, tensor.dtype == "bool")
            total += -(-entry.size // ALIGNMENT) * ALIGNMENT
        users[name] = users.get(name, 0) + 1
        if copies[name].boolean != (tensor.dtype == "bool"):
            raise Refusal("tensor.bool", use.name)
        table.append(_table_entry(use, tensor, copies[name], draft))
    for use, row in zip(draft.weights, table, strict=True):
        name = next(c.name for c in copies.values() if c.target == row["offset"] and c.size == row["bytes"])
        if row["written"] and users[name] > 1:
            raise Refusal("write.shared", use.name)
    draft.document["weights"] = table
    return tuple(copies.values()), total


def _payloads(archive: zip_.Archive, name: str, folder: str, prefix: str) -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = _document(archive, name, "PayloadConfig")["config"]
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


def _table_entry(use: interface.WeightUse, tensor: tensors.Stored, copy: Copy, draft: program.Draft) -> dict[str, Any]:
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
        "offset": copy.target,
        "bytes": copy.size,
        "written": written,
    }


def _check_names(extra: record.Record, inputs: dict[str, dict[str, Any]]) -> None:
    """One name for a size, one size for a name; a fixed axis has none."""
    sizes: dict[str, Any] = {}
    for name, axis, dimension in extra.dimensions:
        size = inputs[name]["shape"][axis]
        if isinstance(size, int) or sizes.setdefault(dimension, size) != size:
            raise Refusal("record.form", f"dimension {dimension!r} names a fixed size, or two sizes")
    if len({json.dumps(s) for s in sizes.values()}) != len(sizes):
        raise Refusal("record.form", "two dimensions name one size")


def _apply(extra: record.Record, document: dict[str, Any]) -> None:
    """Names of Headway's record into the document; they must speak of what is there."""
    inputs = {i["name"]: i for i in document["inputs"]}
    for name, axis, _ in extra.dimensions:
        if name not in inputs or axis >= len(inputs[name]["shape"]):
            raise Refusal("record.form", f"dimension of axis {axis} of {name!r}, which the program does not have")
    _check_names(extra, inputs)
    document["dimensions"] = [[name, axis, dimension] for name, axis, dimension in extra.dimensions]
    if extra.outputs is not None:
        if len(extra.outputs) != len(document["outputs"]) or len(set(extra.outputs)) != len(extra.outputs):
            raise Refusal("record.form", f"{len(extra.outputs)} output names for {len(document['outputs'])} outputs")
        for entry, name in zip(document["outputs"], extra.outputs, strict=True):
            entry["name"] = name
