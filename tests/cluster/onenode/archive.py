"""Image archives of one static binary, without an image builder."""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65532  # the user of every image of this project


def pack(binary: Path, names: Sequence[str], to: Path, *, user: int = 0) -> Path:
    """Write an archive (docker format) of an image that holds a binary, its entrypoint, and return its path.

    `names` are whole references (localhost/NAME:TAG).
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(binary, binary.name)
    digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{binary.name}"], "User": f"{user}:{user}"},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = [{"Config": "config.json", "Layers": ["layer"], "RepoTags": [*names]}]
    parts = {
        "layer": layer.getvalue(),
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(to, "w") as archive:
        for part, data in parts.items():
            info = tarfile.TarInfo(part)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return to
