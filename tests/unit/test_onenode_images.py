"""Images: when they are built anew, what of them is sent, and whose settings the build borrows."""

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from onenode import archive, base, containerd_store, images, pip_settings, s3

IMAGE = images.Image("probe", "Containerfile", ("one.txt", "folder"))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "folder/__pycache__").mkdir(parents=True)
    for name in ("Containerfile", "one.txt", "folder/two.py", "not-an-input"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("changed", ["Containerfile", "one.txt", "folder/two.py", "folder/new.py"])
def test_an_image_is_new_when_an_input_changed(sources: Path, changed: str) -> None:
    before = images.content_key(sources, IMAGE, {"BASE": "a"})
    (sources / changed).write_text("other")
    assert images.content_key(sources, IMAGE, {"BASE": "a"}) != before


@pytest.mark.parametrize("changed", ["not-an-input", "folder/__pycache__/two.pyc"])
def test_an_image_stays_when_something_else_changed(sources: Path, changed: str) -> None:
    before = images.content_key(sources, IMAGE, {"BASE": "a"})
    (sources / changed).write_text("other")
    assert images.content_key(sources, IMAGE, {"BASE": "a"}) == before
    assert images.content_key(sources, IMAGE, {"BASE": "b"}) != before


def test_a_missing_input_is_named(sources: Path) -> None:
    (sources / "one.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"one\.txt"):
        images.content_key(sources, IMAGE, {})


def test_the_repositorys_images_have_all_their_inputs() -> None:
    for image in images.IMAGES:
        assert images.content_key(images.REPOSITORY, image, {})


def oci_layout(folder: Path, reference: str, layers: list[bytes]) -> list[str]:
    """An OCI layout directory with one image; the digests of its layers."""

    def put(data: bytes) -> dict[str, object]:
        digest = "sha256:" + sha256(data).hexdigest()
        path = containerd_store.blob(folder, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"mediaType": "m", "digest": digest, "size": len(data)}

    described = [put(layer) for layer in layers]
    manifest = put(json.dumps({"config": put(b"{}"), "layers": described}).encode())
    index_path = folder / "index.json"
    index = json.loads(index_path.read_text()) if index_path.exists() else {"manifests": []}
    index["manifests"].append({**manifest, "annotations": {containerd_store.REFERENCE: reference}})
    index_path.write_text(json.dumps(index))
    return [str(layer["digest"]) for layer in described]


def test_only_layers_that_the_node_lacks_are_sent(tmp_path: Path) -> None:
    old, new = oci_layout(tmp_path, "key", [b"old layer", b"new"])
    sent = io.BytesIO()
    size = containerd_store.write_archive(tmp_path, "key", ["a:dev", "a:key"], {old}, sent)
    with tarfile.open(fileobj=io.BytesIO(sent.getvalue())) as tar:
        names = tar.getnames()
        index = json.load(tar.extractfile("index.json") or io.BytesIO())
    assert f"blobs/{new.replace(':', '/')}" in names
    assert f"blobs/{old.replace(':', '/')}" not in names
    assert [entry["annotations"][containerd_store.FULL_NAME] for entry in index["manifests"]] == ["a:dev", "a:key"]
    assert size < 500


def test_earlier_images_of_a_layout_are_forgotten_but_not_the_layers_in_common(tmp_path: Path) -> None:
    common, old = oci_layout(tmp_path, "old", [b"common", b"old"])
    _, new = oci_layout(tmp_path, "new", [b"common", b"new"])
    containerd_store.keep_only(tmp_path, "new")
    assert [containerd_store.blob(tmp_path, digest).exists() for digest in (common, old, new)] == [True, False, True]
    with pytest.raises(KeyError):
        containerd_store.manifest_of(tmp_path, "old")


def test_a_packed_binary_is_its_images_entrypoint_and_runs_as_nobody(tmp_path: Path) -> None:
    (tmp_path / "server").write_bytes(b"program")
    packed = archive.pack(tmp_path / "server", ["localhost/server:1"], tmp_path / "out.tar", user=archive.NOBODY)
    with tarfile.open(packed) as tar:
        config = json.load(tar.extractfile("config.json") or io.BytesIO())
        layer = (tar.extractfile("layer") or io.BytesIO()).read()
    assert config["config"] == {"Entrypoint": ["/server"], "User": "65532:65532"}
    assert config["rootfs"]["diff_ids"] == ["sha256:" + sha256(layer).hexdigest()]


@pytest.mark.parametrize(
    ("sources_text", "mirror"),
    [
        ("deb http://mirror.example/debian bookworm main", "http://mirror.example/debian"),
        ("deb [signed-by=/k] https://mirror.example/debian/ bookworm main", "https://mirror.example/debian"),
        ("Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie", "http://mirror.example/debian"),
        ("deb http://mirror.example/debian-security bookworm main", None),
        ("deb http://mirror.example/ubuntu noble main", None),
        ("# deb http://mirror.example/debian bookworm main", None),
    ],
)
def test_the_base_comes_from_the_mirror_that_apt_uses(sources_text: str, mirror: str | None) -> None:
    assert base.mirror([sources_text]) == mirror


def test_settings_of_pip_come_from_its_files_and_the_environment_wins() -> None:
    listing = "global.index-url='https://index.example/simple'\nglobal.cert='/a.crt'\nglobal.find-links='/wheels'\n"
    environment = {"PIP_CERT": "/b.crt", "PIP_EXTRA_INDEX_URL": "https://x.example\nhttps://y.example", "HOME": "/"}
    settings = pip_settings.parse(listing, environment)
    assert settings.certificates == Path("/b.crt")
    assert settings.values == {
        "index-url": "https://index.example/simple",
        "extra-index-url": "https://x.example https://y.example",
    }


def test_nothing_is_left_to_fill_in_in_the_s3_servers_manifest() -> None:
    text = s3.manifest("ns", bucket="models", access="a-key", secret="a-secret")
    assert "@" not in text
    assert "/objects/models" in text
