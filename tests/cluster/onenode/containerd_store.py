"""Load an image into a node's containerd, sending only the layers that it does not have."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

REFERENCE = "org.opencontainers.image.ref.name"
FULL_NAME = "io.containerd.image.name"


def blobs(layout: Path, manifest_digest: str) -> list[str]:
    """Digests of an image in an OCI layout directory: its manifest, its configuration, its layers."""
    manifest = json.loads(blob(layout, manifest_digest).read_bytes())
    return [manifest_digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def manifest_of(layout: Path, reference: str) -> dict[str, object]:
    """The descriptor in the layout's index of the image that was pushed under this reference. Raises KeyError."""
    for entry in json.loads((layout / "index.json").read_text())["manifests"]:
        if entry.get("annotations", {}).get(REFERENCE) == reference:
            return {name: entry[name] for name in ("mediaType", "digest", "size")}
    raise KeyError(f"{layout} has no image {reference}")


def write_archive(layout: Path, reference: str, names: Sequence[str], present: set[str], to: IO[bytes]) -> int:
    """Write the image as an OCI archive for `ctr images import`, under all the names, without the blobs that are
    present in the receiving store. Returns the bytes of the blobs written.
    """
    descriptor = manifest_of(layout, reference)
    index = {
        "schemaVersion": 2,
        "manifests": [{**descriptor, "annotations": {FULL_NAME: name}} for name in names],
    }
    sent = 0
    with tarfile.open(fileobj=to, mode="w|") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for number, digest in enumerate(blobs(layout, str(descriptor["digest"]))):
            if number > 1 and digest in present:  # the manifest and the configuration are always needed
                continue
            path = blob(layout, digest)
            archive.add(path, f"blobs/{digest.replace(':', '/')}")
            sent += path.stat().st_size
    return sent


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def keep_only(layout: Path, reference: str) -> None:
    """Forget the layout's other images and delete the blobs that only they had."""
    index = json.loads((layout / "index.json").read_text())
    kept = [entry for entry in index["manifests"] if entry.get("annotations", {}).get(REFERENCE) == reference]
    (layout / "index.json").write_text(json.dumps({**index, "manifests": kept}))
    needed = {digest for entry in kept for digest in blobs(layout, entry["digest"])}
    for path in (layout / "blobs/sha256").iterdir():
        if f"sha256:{path.name}" not in needed:
            path.unlink()
