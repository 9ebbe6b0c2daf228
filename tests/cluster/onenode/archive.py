"""Image archives of one static binary, without an image builder."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

NOBODY = 65532  # the user of every image of this project


def pack(binary: Path, name: str, to: Path, *, user: int = 0, folders: tuple[str, ...] = ()) -> Path:
    """Write an archive (docker format) of an image that holds a binary, its entrypoint, and return its path.

    `name` is the whole reference (localhost/NAME:TAG); `folders` are created empty, owned by the user.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in folders:
            entry = tarfile.TarInfo(folder.strip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, user, user
            tar.addfile(entry)
        tar.add(binary, binary.name)
    digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{binary.name}"], "User": f"{user}:{user}"},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = [{"Config": "config.json", "Layers": ["layer"], "RepoTags": [name]}]
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
