"""The pod's prepare step for a native package: who signed it, whether it can run here, and then its parts.

A package reaches this only after its digest and signature were verified. An unsigned one is met by the inspector like
any other artifact, and refused there (rule ``native.unsigned``). No torch is imported here.
"""

import hashlib
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from headway_runtime.native import package, processor
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.inspection import Inspected, Inspection
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.prepare.signatures.malformed import invalid
from headway_runtime.prepare.signatures.verify import Signed
from headway_runtime.prepare.sizes import expression as ex


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A package's parts in the work folder: ``source`` is to be inspected, like any artifact."""

    manifest: package.Manifest
    source: Path
    libraries: Mapping[str, Path]

    def check(self, programs: Mapping[str, Inspected]) -> None:
        """Hold the manifest against the inspected source. Raises Refusal ``native.form``."""
        if self.manifest.programs.keys() != programs.keys():
            raise Refusal("native.form", "its programs are not those of its source").within(package.MANIFEST)
        for name, guards in self.manifest.programs.items():
            symbols = programs[name].document["symbols"].keys()
            if any(not ex.from_json(guard).symbols() <= symbols for guard in guards):
                raise Refusal("native.form", "a condition on a size that is none").inside(name).within(package.MANIFEST)

    def place(self, output: Path) -> None:
        """Move the libraries into the prepared directory ``output``."""
        for name, library in self.libraries.items():
            target = package.library_file(output, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            library.replace(target)
        package.manifest_file(output).write_bytes(self.manifest.to_json())


def unpack(artifact: Path, work: Path, signed: Signed | None) -> Unpacked | None:
    """The parts of a package in ``work``; ``artifact`` is gone then, to make room. None for an artifact that no builder
    has signed as native code, or that is no package.

    Raises SignatureError when the package is not what was signed, Refusal ``native.*``.
    """
    if signed is None or not signed.statement.native:
        return None
    with zip_.open_archive(artifact) as archive:
        if not package.is_package(archive):
            return None
        manifest = package.read(archive)
        _check_signed(manifest, signed)
        check_here(manifest)
        source = work / package.SOURCE
        digest = _extract(archive, package.SOURCE, source)
        if digest != manifest.source:
            raise Refusal("native.form", f"the source has digest {digest}").within(package.SOURCE)
        libraries = {}
        for number, name in enumerate(sorted(manifest.programs)):
            record = package.library_record(name)
            if archive.entries[record].size > package.MAX_LIBRARY:
                raise Refusal("archive.record_size", f"at most {package.MAX_LIBRARY} bytes").within(record)
            libraries[name] = work / f"{number}.so"
            _extract(archive, record, libraries[name])
    artifact.unlink()
    return Unpacked(manifest, source, libraries)


def examine(path: Path, signed: Signed | None = None) -> tuple[package.Manifest, Inspection]:
    """What a package says of itself, and its source inspected as in a pod: for whoever is about to sign it, or, with
    what was ``signed``, wants to know whether a pod takes it. Nothing of the native code is read. Raises Refusal, and
    SignatureError when the package is not what was signed.
    """
    with tempfile.TemporaryDirectory(prefix="headway-sign-") as folder, zip_.open_archive(path) as archive:
        if not package.is_package(archive):
            raise Refusal("native.form", "it holds no native code; sign it without --native")
        manifest = package.read(archive)
        if signed is not None:
            _check_signed(manifest, signed)
        source = Path(folder) / package.SOURCE
        if (digest := _extract(archive, package.SOURCE, source)) != manifest.source:
            raise Refusal("native.form", f"the source has digest {digest}").within(package.SOURCE)
        inspection = inspect_isolated(source)
        Unpacked(manifest, source, {}).check(inspection.programs)
    return manifest, inspection


def remove(output: Path) -> None:
    """What an earlier preparation left of native code."""
    shutil.rmtree(package.manifest_file(output).parent, ignore_errors=True)


def check_here(manifest: package.Manifest) -> None:
    """Raise Refusal ``native.torch`` or ``native.processor`` when the package cannot run in this image or on this
    machine.
    """
    try:
        here = metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:  # prepared where nothing is served: the serving process asks again
        here = manifest.torch
    if manifest.torch != here:
        raise Refusal("native.torch", f"compiled with {manifest.torch}, and this runtime has {here}")
    if why := processor.lacking(manifest.features):
        raise Refusal("native.processor", f"target {manifest.target}: {why}")


def _check_signed(manifest: package.Manifest, signed: Signed) -> None:
    said = signed.statement
    for what, of_package, of_signature in (
        ("torch", manifest.torch, said.torch),
        ("target", manifest.target, said.target),
        ("source", manifest.source, said.source),
    ):
        if of_package != of_signature:
            raise invalid(f"the signature says {what} {of_signature}, and the native package {of_package}")


def _extract(archive: zip_.Archive, name: str, target: Path) -> str:
    """Write a record to a file; its digest, ``sha256:<hex>``. Raises Refusal ``archive.crc``."""
    entry = archive.entries[name]
    sha, crc = hashlib.sha256(), 0
    with target.open("wb") as out:
        for at in range(0, entry.size, zip_.CHUNK):
            part = archive.pread(entry.offset + at, min(zip_.CHUNK, entry.size - at))
            crc = zlib.crc32(part, crc)
            sha.update(part)
            out.write(part)
    if crc != entry.crc:
        raise Refusal("archive.crc").within(name)
    return f"sha256:{sha.hexdigest()}"
