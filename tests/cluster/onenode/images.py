"""Headway's own images: built when their inputs changed, loaded when the cluster lacks them.

Every image gets two names: `localhost/headway-NAME:dev`, and one whose tag is the hash of what it was built from.
Pods that must follow a change use the second, because the same name never means another image.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import containerd_store, instance, node
from .archive import NOBODY, pack
from .base import base_image
from .build import S3, VERSITYGW, build
from .buildah import Buildah, open_buildah
from .errors import OnenodeError, StepError
from .layout import NODE_INSTANCES, PACKAGE, cache
from .lock import locked
from .pip_settings import lent, of_this_machine

REPOSITORY = PACKAGE.parents[2]
_HELPERS = tuple(f"tests/cluster/images/{name}.py" for name in ("requirements", "install", "cpu_only", "elf"))
_COMMON = ("pyproject.toml", "constraints.txt", "LICENSE", "operator/headway_api", *_HELPERS)


@dataclass(frozen=True, slots=True)
class Image:
    """`inputs` are the files and folders of the repository that its Containerfile copies."""

    name: str
    containerfile: str
    inputs: tuple[str, ...] = ()


IMAGES = (
    Image("operator", "operator/Containerfile", (*_COMMON, "operator/headway_operator")),
    Image("runtime", "runtime/Containerfile", (*_COMMON, "runtime/build_kernels.py", "runtime/headway_runtime")),
    Image("router", "operator/router.Containerfile"),
)
NAMES = (*(image.name for image in IMAGES), "s3")


def names_of(name: str, key: str) -> tuple[str, str]:
    return f"localhost/headway-{name}:dev", f"localhost/headway-{name}:{key}"


def files(root: Path, inputs: Sequence[str]) -> Iterator[Path]:
    """Every file that the inputs name or hold, in a fixed order; no byte code. Raises FileNotFoundError."""
    for name in inputs:
        path = root / name
        if not path.exists():
            raise FileNotFoundError(f"an image is built from {name}, which is not in {root}")
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def content_key(root: Path, image: Image, arguments: Mapping[str, str]) -> str:
    """Hash of all that decides what is in the image: its inputs and the build's arguments."""
    key = hashlib.sha256(repr(sorted(arguments.items())).encode())
    for path in files(root, (image.containerfile, *image.inputs)):
        key.update(f"\0{path.relative_to(root)}\0".encode())
        key.update(hashlib.sha256(path.read_bytes()).digest())
    return key.hexdigest()[:12]


def ensure(names: Sequence[str], number: int) -> list[str]:
    """Build and load what is missing; return both names of each image.

    An instance that is not up gets nothing: the images are built, which is said on stderr. Raises
    MissingCapabilityError, StepError and what `build` raises.
    """
    loaded: list[str] = []
    up = instance.find(number)
    if not up:
        print(f"instance {number} is not up: building only", file=sys.stderr)
    node_ = Node(number) if up else None
    with locked(cache() / "images.lock", "another build of images"):
        wanted = [image for image in IMAGES if image.name in names]
        if wanted:
            buildah = open_buildah()
            try:
                for image in wanted:
                    loaded += _ensure(image, buildah, node_)
            finally:
                buildah.close()
        if "s3" in names:
            loaded += _ensure_s3(node_)
    return loaded


@dataclass(slots=True)
class Node:
    """The image store of a running instance."""

    number: int

    def _ctr(self, *args: str) -> list[str]:
        _, inside = instance.running(self.number)
        return [*inside, *(str(part) for part in node.CTR), *args]

    def has(self, names: Sequence[str]) -> bool:
        """Whether all the names are there and mean the same image."""
        listing = subprocess.run(self._ctr("images", "ls"), check=True, capture_output=True, text=True).stdout
        digests = {line.split()[0]: line.split()[2] for line in listing.splitlines()[1:]}
        found = {digests.get(name) for name in names}
        return None not in found and len(found) == 1

    def contents(self) -> set[str]:
        """Digests of the blobs that it has."""
        listing = subprocess.run(self._ctr("content", "ls", "-q"), check=True, capture_output=True, text=True).stdout
        return set(listing.split())

    @contextmanager
    def importing(self) -> Iterator[IO[bytes]]:
        """A running import: what is written to the stream is the archive. Raises StepError."""
        layout, inside = instance.running(self.number)
        command = [*inside, *(str(part) for part in node.import_command(layout)), "-"]
        log = cache() / "images.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        with process:
            assert process.stdin
            yield process.stdin
        if process.returncode:
            raise StepError(f"loading an image into instance {self.number} failed:\n{log.read_text()}")


def _ensure(image: Image, buildah: Buildah, to: Node | None) -> tuple[str, str]:
    base = base_image(buildah)
    arguments = {"BASE": base, **({"PYTHON_BASE": base} if image.name == "router" else {})}
    if image.name == "runtime" and (index := os.environ.get("HEADWAY_TORCH_INDEX")):
        arguments["TORCH_INDEX"] = index
    key = content_key(REPOSITORY, image, arguments)
    names = names_of(image.name, key)
    layout = cache() / "oci" / image.name
    try:
        containerd_store.manifest_of(layout, key)
    except (OSError, KeyError):
        _build(image, buildah, arguments, key, layout)
    if to and not to.has(names):
        with to.importing() as stream:
            sent = containerd_store.write_archive(layout, key, names, to.contents(), stream)
        print(f"loaded {names[1]}: {sent / 1e6:.1f} MB that the node did not have", file=sys.stderr)
    return names


def _build(image: Image, buildah: Buildah, arguments: Mapping[str, str], key: str, layout: Path) -> None:
    built = f"localhost/headway-{image.name}:{key}"
    never_pulled = ["--pull-never"] if arguments["BASE"].startswith("localhost/") else []
    with lent(of_this_machine()) as volumes:
        buildah.step(
            f"image {image.name}",
            *("build", "--layers", "--isolation", "chroot", *never_pulled, *volumes),
            *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
            *("--tag", built, "--file", REPOSITORY / image.containerfile, REPOSITORY),
        )
    _push(buildah, built, key, layout, f"layers of {image.name}")


def _push(buildah: Buildah, built: str, key: str, layout: Path, label: str) -> None:
    """Write the image into an OCI layout, where `push` skips the layers that are there by their digest.

    It would compress new layers, and so give them another digest than the next push looks for. Therefore new ones are
    first written as they are, by the `dir:` transport, and moved to where the real push finds them.
    """
    diff_ids = json.loads(buildah.answer("inspect", "--type", "image", built))["OCIv1"]["rootfs"]["diff_ids"]
    if any(not containerd_store.blob(layout, digest).exists() for digest in diff_ids[:-1]):
        plain = layout.with_name(f"{layout.name}.part")
        shutil.rmtree(plain, ignore_errors=True)
        plain.mkdir(parents=True)
        buildah.step(label, "push", "--disable-compression", built, f"dir:{plain}")
        (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        for digest in diff_ids:
            (plain / digest.removeprefix("sha256:")).rename(containerd_store.blob(layout, digest))
        shutil.rmtree(plain)
    buildah.answer("push", "--quiet", built, f"oci:{layout}:{key}")
    containerd_store.keep_only(layout, key)


def _ensure_s3(to: Node | None) -> tuple[str, str]:
    build((VERSITYGW,))
    names = names_of("s3", S3.key()[:12])
    if to and not to.has(names):
        archive = pack(VERSITYGW.path(), names, cache() / "s3.tar", user=NOBODY)
        with to.importing() as stream:
            stream.write(archive.read_bytes())
        archive.unlink()
        print(f"loaded {names[1]}", file=sys.stderr)
    return names


def clean() -> None:
    """Remove all built images and the nodes' stores, which only grow; the programs stay. Raises OnenodeError."""
    if up := [number for number in NODE_INSTANCES if instance.find(number)]:
        raise OnenodeError(f"instance {up[0]} is up and uses its images: end it first with `down`")
    with locked(cache() / "images.lock", "another build of images"):
        for path in (cache() / "buildah", cache() / "oci", cache() / "pip", *cache().glob("images-*")):
            shutil.rmtree(path, ignore_errors=True)
