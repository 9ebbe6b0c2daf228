"""The whole inspection of one file: archive, records, programs, weights. What comes out is made only of what was
checked.

An archive may hold several programs. Every one is inspected, and one bad program refuses the file: which of them runs
is the cluster's choice, not the file's. A weight's bytes are only copied (by ``repack``) or compared with another's
(``storage``), after every description of them was held against the size of its record.
"""

import re
from dataclasses import dataclass
from typing import Any

from headway_runtime.native import package
from headway_runtime.prepare import decoding, programs, storage, wiring
from headway_runtime.prepare.beside import record, samples
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import dimensions
from headway_runtime.prepare.storage import Copy
from headway_runtime.prepare.translate import operators, program, trees

MAX_PROGRAMS = 64
TORCH_VERSIONS = {"2.13", "2.14", "2.15"}

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
_IDENTITY = re.compile(rb"[0-9]{1,64}\Z")
_LEGACY = {"serialized_exported_program.json", "serialized_state_dict.pt"}
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}[A-Za-z0-9.+_-]{0,48}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Inspected:
    """One program. ``document`` is what ``repack`` writes; ``samples`` are golden, recorded beside the program, or else
    its example inputs (without outputs); ``operators`` counts them; ``note`` says why there is no example.
    """

    document: dict[str, Any]
    samples: tuple[dict[str, Any], ...]
    operators: dict[str, int]
    note: str = ""

    @property
    def torch(self) -> str:
        """The torch that exported it, without its build (``2.15.0``)."""
        return str(self.document["torch"])


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything ``repack`` and the report need: the programs by name, in order, how ``weights.bin`` is made, and where
    the tokenizer is.
    """

    programs: dict[str, Inspected]
    copies: tuple[Copy, ...]
    weights_bytes: int
    tokenizer: Copy | None = None

    @property
    def main(self) -> Inspected:
        """The program that is meant when none is named; of several without a ``model``, the first."""
        return self.programs[programs.default(self.programs) or next(iter(self.programs))]

    @property
    def document(self) -> dict[str, Any]:
        return self.main.document

    @property
    def samples(self) -> tuple[dict[str, Any], ...]:
        return self.main.samples

    @property
    def operators(self) -> dict[str, int]:
        return self.main.operators

    @property
    def torch(self) -> str:
        return self.main.torch


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
    found = _check_records(archive)
    weights = storage.Storage(archive)
    tokenizer = _tokenizer(archive)
    inspected = {name: _program(archive, name, weights, found, tokenizer=bool(tokenizer)) for name in found}
    for name in found:
        try:
            wiring.check(name, {other: each.document for other, each in inspected.items()}, tokenizer=bool(tokenizer))
        except Refusal as r:
            raise r.inside("steps").within(programs.record(name, found)) from None
    copies, total = weights.place()
    return Inspection(inspected, copies, total, tokenizer)


def _tokenizer(archive: zip_.Archive) -> Copy | None:
    """The tokenizer beside the programs: any JSON; what it means is for who reads it."""
    if record.TOKENIZER not in archive.entries:
        return None
    try:
        strict_json.parse(archive.read(record.TOKENIZER, record.MAX_TOKENIZER))
    except Refusal as r:
        raise r.within(record.TOKENIZER) from None
    entry = archive.entries[record.TOKENIZER]
    return Copy(record.TOKENIZER, entry.offset, entry.size, entry.crc, 0, False)


def _program(
    archive: zip_.Archive, name: str, weights: storage.Storage, all_names: list[str], *, tokenizer: bool
) -> Inspected:
    where = f"models/{name}.json"
    document = storage.document(archive, where, "ExportedProgram")
    _check_versions(document, where)
    try:
        draft = program.build(document)
    except Refusal as r:
        raise r.within(where) from None
    del document["graph_module"]["graph"]  # it is translated, and most of what this process holds
    _check_unique(draft.document["inputs"], "input")
    weights.add(name, draft)
    example, note = samples.read(
        archive,
        f"data/sample_inputs/{name}.pt",
        leaves=trees.leaves(
            document["graph_module"]["module_call_graph"][0]["signature"]["in_spec"],
            trees.named_tuples(document["graph_module"]),
        ),
        inputs=draft.document["inputs"],
    )
    extra = record.Record()
    beside = programs.record(name, all_names)
    if beside in archive.entries:
        try:
            extra = record.parse(archive.read(beside, record.MAX_BYTES))
            record.apply(extra, draft.document)
        except Refusal as r:
            raise r.within(beside) from None
    _check_unique(draft.document["outputs"], "output")
    try:
        decoding.check(draft.document, draft.operands, tokenizer=tokenizer)
    except Refusal as r:
        raise r.within(beside if r.rule.startswith("record.") else where) from None
    dimensions.of_document(draft.document)  # each has an axis to be read from, and a name of its own
    draft.document["torch"] = str(draft.document["torch"]).partition("+")[0]
    found = extra.samples or ((example,) if example else ())
    if decoding.is_decoder(draft.document):  # its golden samples are prompts; examples would show slots of no cache
        found, note = (), ""
    return Inspected(draft.document, found, draft.operators, note)


def _check_unique(tensors_: list[dict[str, Any]], what: str) -> None:
    """A client names tensors: with ``{"a": {"b": …}, "a.b": …}`` it could only name one of two."""
    seen: set[str] = set()
    for tensor in tensors_:
        if tensor["name"] in seen:
            raise Refusal("name.twice", f"{what} {tensor['name']!r}")
        seen.add(tensor["name"])


def _check_records(archive: zip_.Archive) -> list[str]:
    """Only records of a plain export, each header as it must be. Returns the names of the programs, sorted."""
    _check_not_another_format(archive)
    if package.is_package(archive):  # one that a builder signed is taken apart before (native.unpack)
        raise Refusal("native.unsigned")
    for name in archive.entries:
        if not _RECORDS.match(name):
            raise Refusal("archive.record", name)
    for name, accepted in _HEADERS.items():
        if name not in archive.entries:
            raise Refusal("archive.missing", name)
        if archive.read(name, 64) not in accepted:
            raise Refusal("archive.header").within(name)
    identity = ".data/serialization_id"
    if identity in archive.entries and not _IDENTITY.match(archive.read(identity, 64)):
        raise Refusal("archive.header").within(identity)
    models = sorted(n.removeprefix("models/").removesuffix(".json") for n in archive.entries if n.startswith("models/"))
    if not 1 <= len(models) <= MAX_PROGRAMS:
        raise Refusal("archive.programs", f"{len(models)} programs, at most {MAX_PROGRAMS}")
    own = {
        name
        for model in models
        for name in (
            f"data/weights/{model}_weights_config.json",
            f"data/constants/{model}_constants_config.json",
            f"data/sample_inputs/{model}.pt",
        )
    }
    for name in sorted(own - archive.entries.keys()):
        raise Refusal("archive.missing", name)
    for name in archive.entries:
        if name.startswith("data/") and name not in own and not storage.WEIGHT.match(name):
            raise Refusal("archive.record", name)
    return models


def _check_not_another_format(archive: zip_.Archive) -> None:
    """Other files that torch writes, by the names of their records: none is read."""
    names = archive.entries.keys()
    if "archive_format" in names:
        return
    if names & _LEGACY:
        raise Refusal("archive.legacy")
    if "data.pkl" in names:
        raise Refusal("archive.pickle")


def _check_versions(document: dict[str, Any], name: str) -> None:
    version = document.get("torch_version", "")
    if not _VERSION.match(version) or ".".join(version.split(".")[:2]) not in TORCH_VERSIONS:
        why = f"exported with torch {version}, this Headway runs torch {operators.TORCH}"
        raise Refusal("schema.torch", why).within(name)
    if not set(document.get("verifiers", [])) <= {"TRAINING", "ATEN", ""}:
        raise Refusal("schema.value", document["verifiers"]).inside("verifiers").within(name)
    if any(not re.match(r"[a-z_]{1,32}\Z", key) for key in document["opset_version"]):
        raise Refusal("schema.value", sorted(document["opset_version"])[:3]).inside("opset_version").within(name)
    module = document["graph_module"]
    if set(module.get("metadata", {})) - {"custom"}:
        raise (
            Refusal("schema.unknown", sorted(module["metadata"])).inside("metadata").inside("graph_module").within(name)
        )
