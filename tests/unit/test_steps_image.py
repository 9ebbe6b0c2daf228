"""Encoded images to pixels: what torchvision makes of them, and what strangers may send."""

import base64
import io
import struct
import threading
import time
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from headway_runtime.errors import InvalidRequestError, TooLargeError
from headway_runtime.prepare.beside.steps import Image
from headway_runtime.program import TensorSpec
from headway_runtime.serving.steps.image import MAX_IMAGES, ImageStep
from headway_runtime.serving.steps.pixels import MAX_PIXELS, Recipe
from headway_runtime.serving.values import BytesArray, Call, Given
from PIL import Image as Pillow
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from tests.unit.pod_process import until

PHOTO = Pillow.fromarray(np.random.default_rng(3).integers(0, 256, (90, 130, 3), dtype=np.uint8))


def encoded(image: Pillow.Image, form: str = "PNG", **more: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **more)
    return out.getvalue()


def array(data: bytes, declared: Image, *, floating: bool = True) -> "np.ndarray[Any, Any]":
    return Recipe.of(declared, floating=floating).array(data, "input 'image', image 0")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("resize", [40, (30, 50), None])
@pytest.mark.parametrize("crop", [(24, 28), (120, 140), None])
def test_pixels_are_those_of_torchvision(
    interpolation: str, resize: int | tuple[int, int] | None, crop: tuple[int, int] | None
) -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    parts: list[Any] = [transforms.ToTensor(), transforms.Normalize(mean, std)]
    if crop is not None:
        parts.insert(0, transforms.CenterCrop(crop))
    if resize is not None:
        parts.insert(0, transforms.Resize(resize, interpolation=InterpolationMode(interpolation)))
    wanted = transforms.Compose(parts)(PHOTO)
    declared = Image("pixels", resize=resize, crop=crop, interpolation=interpolation, mean=mean, std=std)
    found = array(encoded(PHOTO), declared)
    assert found.shape == tuple(wanted.shape)
    assert np.allclose(found, wanted.numpy(), atol=1e-5)


def test_layout_channels_and_whole_numbers() -> None:
    plain = array(encoded(PHOTO), Image("pixels", layout="NHWC"), floating=False)
    assert (plain.dtype, plain.shape) == (np.uint8, (90, 130, 3))
    assert np.array_equal(plain, np.asarray(PHOTO))
    grey = array(encoded(PHOTO), Image("pixels", channels="L"), floating=False)
    assert np.array_equal(grey[0], np.asarray(PHOTO.convert("L")))
    scaled = array(encoded(PHOTO), Image("pixels", scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3))
    assert np.allclose(scaled[0], (np.asarray(PHOTO)[..., 0] - 127.0) / 128.0, atol=1e-6)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_pixels_becomes_three_channels(mode: str) -> None:
    image = Pillow.new("I;16", (9, 7)) if mode == "I;16" else PHOTO.resize((9, 7)).convert(mode)
    data = encoded(image, "JPEG" if mode == "CMYK" else "PNG")
    assert array(data, Image("pixels")).shape == (3, 7, 9)


def test_formats_base64_and_the_orientation_of_a_camera() -> None:
    for form in ("JPEG", "PNG", "WEBP"):
        assert array(encoded(PHOTO, form), Image("pixels")).shape == (3, 90, 130)
    data = encoded(PHOTO)
    assert np.array_equal(array(base64.b64encode(data), Image("pixels")), array(data, Image("pixels")))
    turned = PHOTO.getexif()
    turned[0x0112] = 6
    assert array(encoded(PHOTO, "JPEG", exif=turned.tobytes()), Image("pixels")).shape == (3, 130, 90)


def test_of_an_animation_the_first_picture_counts() -> None:
    frames = [PHOTO.resize((8, 8)), PHOTO.resize((8, 8)).rotate(90)]
    data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert np.array_equal(
        array(data, Image("p"), floating=False), array(encoded(frames[0]), Image("p"), floating=False)
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and holds nothing of it."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b""))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no JPEG, PNG or WebP"),
        (b"GIF89a" + bytes(40), "is no JPEG, PNG or WebP"),
        (b"BM" + bytes(100), "is no JPEG, PNG or WebP"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "is no JPEG, PNG or WebP"),
        (b"RIFF\x04\x00\x00\x00WAVE", "is no JPEG, PNG or WebP"),
        (base64.b64encode(b"hello"), "is no JPEG, PNG or WebP"),
        (encoded(PHOTO, "TIFF"), "is no JPEG, PNG or WebP"),
        (encoded(PHOTO)[:400], "cannot be decoded"),
        (encoded(PHOTO, "JPEG")[:400], "cannot be decoded"),
        (encoded(PHOTO, "WEBP")[:400], "cannot be decoded"),
        (b"\xff\xd8\xff", "cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded"),
        (b"RIFF\xff\xff\xff\xffWEBP", "cannot be decoded"),
        (png(0, 5), "cannot be decoded"),
        (png(10_000, 10_000), "has 10000 x 10000 pixels; at most 64,000,000 are decoded"),
        (png(2**31 - 1, 2**31 - 1), "at most 64,000,000 are decoded"),
        (png(6500, 100), "no edge is 64 times the other"),
    ],
)
def test_what_strangers_send_is_refused_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        array(data, Image("pixels"))
    assert words in str(refused.value)
    assert str(refused.value).startswith("input 'image', image 0")


def test_a_large_image_is_refused_before_its_pixels_are_made() -> None:
    assert MAX_PIXELS == 8000 * 8000
    began = time.process_time()
    with pytest.raises(InvalidRequestError):
        array(png(8001, 8000), Image("pixels"))
    assert time.process_time() - began < 0.5


def test_an_image_that_would_become_too_large_is_refused_before_it_does() -> None:
    data = encoded(Pillow.new("L", (640, 10)))
    with pytest.raises(InvalidRequestError, match="would become 262144 x 4096 pixels: it is too long"):
        array(data, Image("pixels", resize=4096, channels="L"))


def test_mutated_images_never_raise_anything_else() -> None:
    random = np.random.default_rng(11)
    small = PHOTO.resize((24, 20))
    for form in ("PNG", "JPEG", "WEBP"):
        data = encoded(small, form)
        for _ in range(150):
            changed = bytearray(data)
            for at in random.integers(0, len(data), 3):
                changed[at] = random.integers(0, 256)
            try:
                assert array(bytes(changed), Image("pixels", resize=(8, 8))).shape == (3, 8, 8)
            except InvalidRequestError:
                continue


SPEC = TensorSpec("pixels", "FP16", (2, 3, 8, 8))


class Client:
    """One call of the step, and what came of it."""

    def __init__(self, step: ImageStep, *items: bytes) -> None:
        self.told: list[Any] = []
        self.given: Given | None = None
        self.over = threading.Event()
        call = Call(time.monotonic() + 30, lambda: False, self._done)
        step.call(Given({"image": BytesArray((len(items),), items)}), call, self._then)
        assert self.over.wait(60)

    def _then(self, given: Given, call: Call) -> None:
        self.given = given
        self.over.set()

    def _done(self, result: Any) -> None:
        self.told.append(result)
        self.over.set()


@pytest.fixture
def step() -> Any:
    made = ImageStep(Image("pixels", resize=(8, 8)), SPEC, lambda f, *a: f(*a), lambda name, seconds: None, threads=2)
    yield made
    made.crew.stop()


def test_images_of_one_request_stand_in_its_order_and_in_the_programs_type(step: ImageStep) -> None:
    photos = [PHOTO.rotate(30 * turn) for turn in range(7)]
    client = Client(step, *(encoded(photo) for photo in photos))
    assert client.given is not None
    pixels = client.given.inputs["pixels"]
    assert isinstance(pixels, torch.Tensor)
    assert (pixels.dtype, tuple(pixels.shape)) == (torch.float16, (7, 3, 8, 8))
    for row, photo in enumerate(photos):
        alone = torch.from_numpy(array(encoded(photo), Image("pixels", resize=(8, 8)))).half()
        assert torch.equal(pixels[row], alone)


def test_no_image_is_no_row_and_one_bad_image_fails_its_request_once(step: ImageStep) -> None:
    nobody = Client(step)
    assert nobody.given is not None
    assert tuple(nobody.given.inputs["pixels"].shape) == (0, 3, 8, 8)
    client = Client(step, encoded(PHOTO), b"no", b"neither")
    until(lambda: client.told, "a word")
    time.sleep(0.1)  # in which another could come
    (error,) = client.told
    assert "is no JPEG, PNG or WebP" in str(error)
    assert client.given is None


def test_too_many_images_and_images_of_different_sizes_are_told() -> None:
    step = ImageStep(Image("pixels"), SPEC, lambda f, *a: f(*a), lambda name, seconds: None, threads=1)
    (error,) = Client(step, encoded(PHOTO), encoded(PHOTO.resize((9, 9)))).told
    assert "images of different sizes in one request" in str(error)
    with pytest.raises(InvalidRequestError, match=f"257 images; at most {MAX_IMAGES}"):
        Client(step, *[b""] * 257)
    step.crew.capacity = 3
    with pytest.raises(
        TooLargeError, match=r"4 images; at most 3 are ever admitted \(spec\.batching\.queue\.capacity\)"
    ):
        Client(step, *[encoded(PHOTO)] * 4)
    step.crew.stop()
