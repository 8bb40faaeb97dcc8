"""Decoding pictures: valid ones alike, a bad one is the error of one item."""

import io
import os
import random
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from transexplain.data import image_files
from transexplain.data.image_files import load_image
from transexplain.errors import ItemError


def picture(mode: str = "RGB", size: tuple[int, int] = (32, 24)) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(noise).convert(mode)


def encoded(name: str, image: Image.Image | None = None, **options) -> bytes:
    stream = io.BytesIO()
    (image or picture()).save(stream, name, **options)
    return stream.getvalue()


def empty_png(width: int, height: int) -> bytes:
    """A few bytes that say they are a picture of that size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 100)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_formats(name, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(encoded(name, **({"lossless": True} if name == "WEBP" else {})))
    image = load_image(path)
    assert (image.mode, image.size) == ("RGB", (32, 24))
    if name in ("PNG", "BMP", "WEBP"):
        assert np.array_equal(np.asarray(image), np.asarray(picture()))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_modes_become_rgb(mode, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(encoded("JPEG" if mode == "CMYK" else "PNG", picture(mode)))
    assert (load_image(path).mode, load_image(path).size) == ("RGB", (32, 24))


def test_a_palette_with_transparency_is_no_error(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encoded("PNG", picture("P"), transparency=bytes(range(200))))
    wanted = np.asarray(picture("P").convert("RGB"))
    assert np.array_equal(np.asarray(load_image(path)), wanted)


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    grey = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    Image.fromarray(grey).save(tmp_path / "x.png")
    assert np.array_equal(np.asarray(load_image(tmp_path / "x.png"))[..., 1], grey >> 8)


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert load_image(tmp_path / "x.gif").getpixel((0, 0)) == (255, 0, 0)


def test_pictures_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    path = tmp_path / "x.png"
    path.write_bytes(encoded("PNG", exif=exif))
    turned = picture().transpose(Image.Transpose.ROTATE_270)
    assert np.array_equal(np.asarray(load_image(path)), np.asarray(turned))


WARNED = encoded("JPEG", exif=b"Exif\0\0" + b"II*\0\x08\0\0\0" + b"\x05\0" + b"\xff" * 12)
FAULTS = [
    *(
        ("bad-image", encoded(name)[: int(len(encoded(name)) * share)])
        for name in image_files.FORMATS
        for share in (0.3, 0.9)
    ),
    *(("bad-image", data) for data in (b"this is a text\n" * 20, b"", b"<svg></svg>")),
    *(("bad-image", encoded(name)) for name in ("TIFF", "PPM")),
    ("bad-image", WARNED),
    *(
        ("image-too-large", empty_png(*size))
        for size in ((9000, 8000), (12000, 10000), (60000, 60000))
    ),
]


@pytest.mark.parametrize(("kind", "data"), FAULTS)
@pytest.mark.parametrize("lifted", [False, True])
def test_what_is_no_picture_is_the_error_of_its_item(
    kind: str, data: bytes, lifted: bool, tmp_path: Path, monkeypatch
) -> None:
    """Also where the program lifted Pillow's own limit."""
    if lifted:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(ItemError, match=r"folder/x\.png") as caught:
        load_image(tmp_path / "x.png", name="folder/x.png")
    assert caught.value.kind == kind
    assert str(tmp_path) not in str(caught.value)


def test_a_warning_of_pillow_is_an_error_and_filters_are_put_back(tmp_path):
    (tmp_path / "x.png").write_bytes(WARNED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Image.open(io.BytesIO(WARNED)).convert("RGB").size == (32, 24)
        with pytest.raises(ItemError):
            load_image(tmp_path / "x.png")
        assert warnings.filters[0][0] == "ignore"


def test_missing_changed_and_large_files(tmp_path, monkeypatch):
    path = tmp_path / "x.png"

    def refused(kind: str, **options: str) -> None:
        with pytest.raises(ItemError) as caught:
            load_image(path, **options)
        assert caught.value.kind == kind

    refused("missing-image")
    path.write_bytes(encoded("PNG"))
    refused("image-changed", sha256="0" * 64)
    monkeypatch.setattr(image_files, "MAX_BYTES", 100)
    refused("image-too-large")


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(image_files.FORMATS), seed=st.integers(0, 2**32), count=st.integers(1, 40)
)
def test_damaged_bytes_are_a_picture_or_the_error_of_one_item(name, seed, count, tmp_path_factory):
    chance = random.Random(seed)
    data = bytearray(encoded(name))
    for _ in range(count):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path = tmp_path_factory.getbasetemp() / f"damaged-{os.getpid()}"
    path.write_bytes(data)
    try:
        assert load_image(path).mode == "RGB"
    except ItemError as error:
        assert error.kind in ("bad-image", "image-too-large")
