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
RUNTIME_PACKAGES = ("python3", "python3-venv", "ca-certificates")
COMPILER_PACKAGES = ("gcc", "libc6-dev")  # for the stubs of images/cpu_only.py, in build stages only
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log")
SOURCES = (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*"))


def bases(buildah: Buildah) -> dict[str, str]:
    """The build arguments BASE and BUILD_BASE: HEADWAY_BASE_IMAGE if it is set, else images made here, once."""
    if given := os.environ.get("HEADWAY_BASE_IMAGE"):
        return {"BASE": given, "BUILD_BASE": given}
    return {
        "BASE": _debian(buildah, "headway-base", RUNTIME_PACKAGES),
        "BUILD_BASE": _debian(buildah, "headway-build-base", RUNTIME_PACKAGES + COMPILER_PACKAGES),
    }


def mirror(sources: list[str]) -> str | None:
    """The Debian mirror that this machine's apt uses, in either format of its sources; None on other systems."""
    for text in sources:
        for line in text.splitlines():
            if found := re.match(r"(?:deb\s+(?:\[[^\]]*\]\s+)?|URIs:\s*)(\S+/debian)/?(?:\s|$)", line):
                return found[1]
    return None


def _debian(buildah: Buildah, name: str, packages: tuple[str, ...]) -> str:
    image = f"localhost/{name}:{_key(packages)}"
    if buildah.has(image):
        return image
    programs(("debootstrap",))
    where = mirror([path.read_text() for path in SOURCES if path.suffix in {".list", ".sources"} and path.exists()])
    debs = cache() / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="base-", dir=cache()))
    try:
        options = ["--variant=minbase", f"--cache-dir={debs}", f"--include={','.join(packages)}"]
        step(
            f"Debian {SUITE} for {name}",
            ["debootstrap", *options, SUITE, root / "tree", *([where] if where else [])],
            log=cache() / "images.log",
        )
        _slim(root / "tree")
        step(f"packing {name}", ["tar", "-C", root / "tree", "-cf", root / "tree.tar", "."], log=cache() / "images.log")
        container = buildah.answer("from", "scratch")
        buildah.answer("add", "--quiet", container, root / "tree.tar", "/")
        buildah.answer("config", "--cmd", "bash", container)
        buildah.answer("commit", "--quiet", "--rm", container, image)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return image


def _key(packages: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join((SUITE, *packages, *NOT_NEEDED)).encode()).hexdigest()[:12]


def _slim(tree: Path) -> None:
    """Keep the directories, drop what is in them; and this machine's mirror does not go into an image."""
    for name in NOT_NEEDED:
        for path in (tree / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (tree / "etc/apt/sources.list").unlink(missing_ok=True)
