"""One file of any kind instead of a folder, animations, and files that another program has to convert."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
import scipy.io.wavfile
from PIL import Image

from onnxport.core.errors import InputError
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.duplicates import duplicates
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import SampleFile, find_samples

PIXELS = (TensorSpec("x", "uint8", ("N", "H", "W", 3)),)
TABLE = (TensorSpec("x", "float32", ("N", 4)),)
ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)


def animation(path: Path, count: int = 4, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Write frames of few colors, which every format keeps; return uint8[6, 9, 3] each."""
    frames = []
    for number in range(count):
        frame = np.zeros((6, 9, 3), np.uint8)
        frame[:, number] = 255
        frame[number] = (255, 0, 0)
        frames.append(frame)
    first, *others = map(Image.fromarray, frames)
    first.save(path, save_all=True, append_images=others, **options)
    return frames


def names(files: tuple[SampleFile, ...]) -> list[str]:
    return [file.label for file in files]


@pytest.mark.parametrize(
    ("name", "options"), [("a.gif", {}), ("a.webp", {"lossless": True}), ("a.apng", {"format": "PNG"})]
)
def test_every_frame_of_an_animation_is_a_set(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    frames = animation(tmp_path / name, **options)
    for place in (tmp_path, tmp_path / name):
        found = find_samples(place, PIXELS, 10)
        assert names(found) == [f"{name}[{number}]" for number in range(4)]
        for frame, file in zip(frames, pickle.loads(pickle.dumps(found)), strict=True):
            np.testing.assert_array_equal(file.load().feeds["x"][0], frame)
        assert duplicates(found) == ()
    assert len(find_samples(tmp_path, PIXELS, 3)) == 3


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.apng"])
def test_a_file_of_one_frame_is_one_set(tmp_path: Path, name: str) -> None:
    Image.new("RGB", (9, 6)).save(tmp_path / name, format="PNG" if name == "a.apng" else None)
    assert names(find_samples(tmp_path, PIXELS, 10)) == [name]


def test_the_still_image_of_an_animated_png_is_no_frame(tmp_path: Path) -> None:
    still = Image.new("RGB", (9, 6), "blue")
    others = [Image.new("RGB", (9, 6), color) for color in ("white", "black")]
    still.save(tmp_path / "a.apng", format="PNG", save_all=True, append_images=others, default_image=True)
    found = find_samples(tmp_path, PIXELS, 10)
    values = [file.load().feeds["x"].ravel()[0] for file in found]
    assert values == [255, 0]


def test_frames_fill_the_batches_of_a_model_between_other_images(tmp_path: Path) -> None:
    animation(tmp_path / "b.gif", 3)
    for name in ("a.png", "c.png"):
        Image.new("RGB", (9, 6)).save(tmp_path / name)
    assert names(find_samples(tmp_path, PIXELS, 9)) == ["a.png", "b.gif[0]", "b.gif[1]", "b.gif[2]", "c.png"]
    found = find_samples(tmp_path, [TensorSpec("x", "uint8", (2, 6, 9, 3))], 9)
    assert names(found) == ["a.png ... b.gif[0]", "b.gif[1] ... b.gif[2]", "c.png ... a.png"]


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.apng"])
def test_an_animation_without_frames_or_cut_off_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    animation(path, format="PNG" if name == "a.apng" else None)
    whole = path.read_bytes()
    # Pillow takes a GIF that lacks its end for one of fewer frames, as browsers do.
    for size in (0, 13, 25, *([len(whole) // 2] if name != "a.gif" else [])):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"{name}.* cannot be read: "):
            [file.load() for file in find_samples(path, PIXELS, 10)]


def test_one_file_of_any_kind_stands_for_a_folder(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    for suffix in ("png", "bmp", "ppm", "tiff"):
        Image.fromarray(pixels).save(tmp_path / f"a.{suffix}")
        (file,) = find_samples(tmp_path / f"a.{suffix}", PIXELS, 10)
        np.testing.assert_array_equal(file.load().feeds["x"][0], pixels)
    Image.fromarray(pixels).save(tmp_path / "a.JPG")
    (file,) = find_samples(tmp_path / "a.JPG", PIXELS, 10, settings=preprocessing({"resize": "4x4"}))
    assert file.load().feeds["x"].shape == (1, 4, 4, 3)

    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "a.npz", x=ROWS)
    safetensors.numpy.save_file({"x": ROWS}, tmp_path / "a.safetensors")
    (tmp_path / "a.csv").write_text("a,b,c,d\n0,1,2,3\n4,5,6,7\n")
    for suffix in ("npy", "npz", "safetensors", "csv"):
        found = find_samples(tmp_path / f"a.{suffix}", TABLE, 10)
        assert names(found) == [f"a.{suffix}[0]", f"a.{suffix}[1]"]
        np.testing.assert_array_equal(found[1].load().feeds["x"], ROWS[1:])

    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(ROWS).SerializeToString())
    (file,) = find_samples(folder, TABLE, 10)
    np.testing.assert_array_equal(file.load().feeds["x"], ROWS)

    scipy.io.wavfile.write(tmp_path / "a.wav", 8000, np.arange(9, dtype=np.int16))
    (file,) = find_samples(tmp_path / "a.wav", [TensorSpec("x", "int16", ("T",))], 10)
    np.testing.assert_array_equal(file.load().feeds["x"], np.arange(9))


def test_one_image_is_too_few_for_a_larger_batch(tmp_path: Path) -> None:
    Image.new("RGB", (9, 6)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png has 1 images: .* 2 images in one batch"):
        find_samples(tmp_path / "a.png", [TensorSpec("x", "uint8", (2, 6, 9, 3))], 10)


@pytest.mark.parametrize("suffix", ["mp4", "MOV", "avi", "mkv", "webm"])
def test_a_video_is_refused_with_the_command_that_extracts_its_frames(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"my clip.{suffix}"
    path.write_bytes(b"\0" * 100)
    for place in (path, tmp_path):
        with pytest.raises(InputError) as refused:
            find_samples(place, PIXELS, 10)
        assert str(refused.value) == (
            f"{path} is a video: videos are not decoded; extract its frames and give their folder: "
            f"mkdir frames && ffmpeg -i '{path}' frames/%05d.png"
        )
    Image.new("RGB", (9, 6)).save(tmp_path / "00001.png")
    assert names(find_samples(tmp_path, PIXELS, 10)) == ["00001.png"], "frames beside their video"


def test_other_audio_and_unknown_files_say_what_to_do(tmp_path: Path) -> None:
    for name in ("a.mp3", "b.txt"):
        (tmp_path / name).write_bytes(b"\0")
    with pytest.raises(
        InputError, match=r"a\.mp3 is no \.wav file: .*; convert it: ffmpeg -i .*a\.mp3 .*a\.wav"
    ):
        find_samples(tmp_path / "a.mp3", PIXELS, 10)
    with pytest.raises(InputError, match=r"b\.txt cannot be read as inputs; give images, \.npz"):
        find_samples(tmp_path / "b.txt", PIXELS, 10)
    with pytest.raises(InputError, match=r"c\.wav does not exist; .* or one such file"):
        find_samples(tmp_path / "c.wav", PIXELS, 10)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_the_command_for_videos_works(tmp_path: Path) -> None:
    import subprocess

    make = "ffmpeg -loglevel error -f lavfi -i testsrc=d=1:r=5:s=32x24 clip.mp4 && mkdir frames && "
    subprocess.run(
        make + "ffmpeg -loglevel error -i clip.mp4 frames/%05d.png", shell=True, cwd=tmp_path, check=True
    )
    assert len(find_samples(tmp_path / "frames", PIXELS, 10)) == 5
