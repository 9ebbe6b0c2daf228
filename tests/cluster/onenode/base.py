"""The images' base where no registry of images is reachable: Debian made from its packages by debootstrap."""

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from .buildah import Buildah
from .layout import cache
from .progress import step
from .requirements import programs

SUITE = "bookworm"  # its Python is 3.11
PACKAGES = ("python3", "python3-venv", "ca-certificates")
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log")
SOURCES = (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*"))


def base_image(buildah: Buildah) -> str:
    """HEADWAY_BASE_IMAGE if it is set, a Debian with Python 3.11; else one that is made here, once."""
    image = os.environ.get("HEADWAY_BASE_IMAGE") or f"localhost/headway-base:{_key()}"
    if image.startswith("localhost/headway-base:") and not buildah.has(image):
        _make(buildah, image)
    return image


def mirror(sources: list[str]) -> str | None:
    """The Debian mirror that this machine's apt uses, in either format of its sources; None on other systems."""
    for text in sources:
        for line in text.splitlines():
            if found := re.match(r"(?:deb\s+(?:\[[^\]]*\]\s+)?|URIs:\s*)(\S+/debian)/?(?:\s|$)", line):
                return found[1]
    return None


def _make(buildah: Buildah, image: str) -> None:
    programs(("debootstrap",))
    where = mirror([path.read_text() for path in SOURCES if path.suffix in {".list", ".sources"} and path.exists()])
    root, log = Path(tempfile.mkdtemp(prefix="base-", dir=cache())), cache() / "images.log"
    try:
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
        target = [SUITE, str(root / "tree"), *([where] if where else [])]
        step(f"image base: Debian {SUITE} with Python", ["debootstrap", *options, *target], log=log)
        _slim(root / "tree")
        step("image base: packing", ["tar", "-C", root / "tree", "-cf", root / "tree.tar", "."], log=log)
        container = buildah.answer("from", "scratch")
        buildah.answer("add", "--quiet", container, root / "tree.tar", "/")
        buildah.answer("config", "--cmd", "bash", container)
        buildah.answer("commit", "--quiet", "--rm", container, image)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _key() -> str:
    return hashlib.sha256("\n".join((SUITE, *PACKAGES, *NOT_NEEDED)).encode()).hexdigest()[:12]


def _slim(tree: Path) -> None:
    """Keep the directories, drop what is in them; and this machine's mirror does not go into an image."""
    for name in NOT_NEEDED:
        for path in (tree / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (tree / "etc/apt/sources.list").unlink(missing_ok=True)
