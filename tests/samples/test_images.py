"""Images as inputs: what they become, against an implementation written here, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onnxport.core.errors import InputError, MissingDependencyError, OnnxportError, UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import find_samples

IMAGENET = {"mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225", "scale": "1/255"}


def picture(path: Path, height: int = 40, width: int = 60, mode: str = "RGB") -> np.ndarray[Any, Any]:
    """Writes an image without losses; uint8[height, width, 3] or [height, width]."""
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = np.random.default_rng(height).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def read(folder: Path, *shape: Dim, dtype: str = "float32", **options: str) -> np.ndarray[Any, Any]:
    """The first image of the folder as the model's only input."""
    inputs = [TensorSpec("x", dtype, shape)]
    (file, *_) = find_samples(folder, inputs, 10, settings=preprocessing(options, folder))
    array = file.load().feeds["x"]
    assert array.dtype == dtype
    return array


def as_torchvision(path: Path, short: int, crop: int) -> np.ndarray[Any, Any]:
    """Resize(short), CenterCrop(crop), ToTensor, Normalize as their documentation has them; float32[3, crop, crop]."""
    image = Image.open(path).convert("RGB")
    w, h = image.size
    size = (short, int(short * h / w)) if w < h else (int(short * w / h), short)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
    top, left = round((pixels.shape[0] - crop) / 2.0), round((pixels.shape[1] - crop) / 2.0)
    tensor = pixels[top : top + crop, left : left + crop].transpose(2, 0, 1).astype(np.float32) / np.float32(
        255
    )
    mean = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
    std = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
    return (tensor - mean) / std


@pytest.mark.parametrize(("height", "width"), [(40, 61), (61, 40), (33, 33), (200, 75), (32, 35)])
def test_the_result_is_that_of_torchvisions_transforms(tmp_path: Path, height: int, width: int) -> None:
    picture(tmp_path / "a.png", height, width)
    ours = read(tmp_path, "N", 3, 24, 24, resize="32", crop="24", **IMAGENET)
    # Both round to float32, at other places: two roundings of values up to 3.
    np.testing.assert_allclose(ours[0], as_torchvision(tmp_path / "a.png", 32, 24), rtol=0, atol=1e-6)


def test_without_settings_an_image_is_its_bytes(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path, 1, 3, "H", "W")[0], pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(read(tmp_path, 1, 40, 60, 3, dtype="uint8")[0], pixels)
    np.testing.assert_array_equal(read(tmp_path, 3, 40, 60)[0], pixels[..., 0])
    np.testing.assert_array_equal(read(tmp_path, "N", 3, 40, 60, color="bgr")[0, 0], pixels[..., 2])
    np.testing.assert_array_equal(read(tmp_path, "N", 40, 60, "C", layout="nhwc", color="rgb")[0], pixels)


def test_bytes_for_int8_are_moved_by_the_mean(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a.png")
    moved = read(tmp_path, 1, 40, 60, 3, dtype="int8", mean="128")
    np.testing.assert_array_equal(moved[0], pixels.astype(int) - 128)
    with pytest.raises(InputError, match=r"does not fit .*; give --preprocess mean=128"):
        read(tmp_path, 1, 40, 60, 3, dtype="int8")


def test_an_exact_size_heeds_no_proportion_and_is_height_by_width(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    assert read(tmp_path, "N", 3, "H", "W", resize="20x50").shape == (1, 3, 20, 50)
    assert read(tmp_path, "N", 3, "H", "W", resize="20").shape == (1, 3, 20, 30)


def test_a_network_of_one_channel_gets_gray(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    gray = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    np.testing.assert_array_equal(read(tmp_path, "N", 1, 40, 60)[0, 0], gray)


def test_the_camera_was_held_upright(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "plain.png", 8, 12)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    (tmp_path / "plain.png").unlink()
    np.testing.assert_array_equal(read(tmp_path, "N", 12, 8, 3)[0], np.rot90(pixels, -1))


def test_palettes_and_transparency_become_plain_colors(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a.png", mode="RGBA")
    np.testing.assert_array_equal(read(tmp_path, "N", 40, 60, 3)[0], pixels[..., :3])
    Image.open(tmp_path / "a.png").convert("RGB").quantize(4).save(tmp_path / "a.png")
    assert len(np.unique(read(tmp_path, "N", 40, 60, 3)[0].reshape(-1, 3), axis=0)) <= 4


def test_a_fixed_batch_takes_several_images_the_first_again_at_the_end(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        picture(tmp_path / f"img{number}.png", 40 + number)
    settings = preprocessing({"resize": "16x16"})
    spec = TensorSpec("x", "float32", (2, 3, 16, 16))
    files = find_samples(tmp_path, [spec], 10, settings=settings)
    assert [file.label for file in files] == ["img1.png ... img2.png", "img10.png ... img1.png"]
    first, second = (file.load().feeds["x"] for file in files)
    assert first.shape == second.shape == (2, 3, 16, 16)
    np.testing.assert_array_equal(second[1], first[0])


def test_too_few_images_and_unlike_ones_make_no_batch(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"has 1 images: the model takes .*, 2 images in one batch"):
        read(tmp_path, 2, 3, "H", "W")
    picture(tmp_path / "b.png", 41)
    with pytest.raises(InputError, match=r"a\.png and b\.png .* differ in size: they are 40x60 and 41x60"):
        read(tmp_path, 2, 3, "H", "W")


@pytest.mark.parametrize(
    ("shape", "options", "kind", "message"),
    [
        ((1, 3, 32, 32), {}, InputError, r"a\.png is 40x60 .*resize=32x32"),
        ((1, 3, 32, "W"), {}, InputError, "resize=32xN"),
        (
            (1, 128),
            {},
            InputError,
            r"a\.png is an image, and no input takes images: the model takes x: float32\[1, 128\]",
        ),
        ((1, 5, 40, 60), {}, InputError, "no input takes images"),
        ((1, 3, 40, 60), {"mean": "1,2"}, UsageError, "mean has 2 values"),
        ((1, 3, 40, 60), {"color": "gray"}, UsageError, "color=gray does not fit .* it has 3 channels"),
        ((1, 3, 40, 60), {"crop": "50"}, InputError, r"a\.png is smaller than crop=50x50"),
        ((1, 3, 40, 60), {"resize": "45", "crop": "50"}, InputError, "give a larger resize"),
        ((1, 3, 40, 60), {"layout": "nhwc"}, UsageError, "layout=nhwc does not fit the model"),
    ],
)
def test_what_does_not_fit_the_model_is_said_with_the_way_out(
    tmp_path: Path, shape: tuple[Dim, ...], options: dict[str, str], kind: type[OnnxportError], message: str
) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(kind, match=message):
        read(tmp_path, *shape, **options)


def test_bytes_are_not_scaled(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(UsageError, match=r"scale and std do not fit x: uint8.* takes bytes"):
        read(tmp_path, 1, 3, 40, 60, dtype="uint8", scale="1/255")


def test_a_model_of_two_inputs_takes_no_images(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    both = [TensorSpec("x", "float32", (1, 3, 40, 60)), TensorSpec("size", "int64", (2,))]
    with pytest.raises(InputError, match=r"a\.png is one image: the model takes \['x', 'size'\]; use \.npz"):
        find_samples(tmp_path, both, 10)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp", "tiff", "gif"])
@pytest.mark.parametrize("damage", ["truncated", "noise", "empty"])
def test_a_damaged_image_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(picture(tmp_path / "b.png", 64, 64)).save(path)
    (tmp_path / "b.png").unlink()
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[: len(whole) // 3], "noise": b"noise" * 50, "empty": b""}[damage])
    with pytest.raises(InputError, match=rf"a\.{suffix} cannot be read: ."):
        read(tmp_path, 1, 3, 64, 64)


def test_sixteen_bits_are_not_cut_to_eight(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 4000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match="more than 8 bits per channel"):
        read(tmp_path, 1, 1, 8, 8)


def test_without_pillow_the_line_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'onnxport\[images\]'"):
        read(tmp_path, 1, 3, 40, 60)
