"""`onnxport validate --inputs`: photos and tensors of the user's own, through the command in a fresh process."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from fixtures import models
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import find_samples
from tests.cli.sandbox import Outcome, Sandbox

IMAGENET = {
    "resize": "256",
    "crop": "224",
    "scale": "1/255",
    "mean": "0.485,0.456,0.406",
    "std": "0.229,0.224,0.225",
}


def flags(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--preprocess", f"{name}={value}")]


def digits(folder: Path, count: int = 3, size: tuple[int, int] = (8, 8)) -> Path:
    folder.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, size, np.uint8)
        Image.fromarray(pixels).save(folder / f"d{number}.png")
    return folder


@pytest.fixture
def pair(sandbox: Sandbox) -> list[str]:
    """The digits network and its .ort form."""
    assert sandbox.run("convert", "model.onnx", "--to", "ort", "-o", "model.ort").code == 0
    return ["model.onnx", "model.ort"]


@pytest.mark.real
def test_photos_are_recognised_once_they_are_preprocessed_as_the_network_was_trained(tmp_path: Path) -> None:
    """20 ImageNet photos, the class in each name: the figure is torchvision's 72 % or better by far, or nothing."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for photo in models.photos():
        shutil.copy(photo, photos)
    session = onnxruntime.InferenceSession(models.mobilenetv2())
    spec = TensorSpec("input", "float32", ("N", 3, 224, 224))

    def right(settings: dict[str, str]) -> int:
        files = find_samples(photos, [spec], 20, settings=preprocessing(settings))
        found = [(file.label, session.run(None, dict(file.load().feeds))[0].argmax()) for file in files]
        return sum(int(Path(label).stem.split("_")[2]) == best for label, best in found)

    assert right(IMAGENET) == 18
    assert right({"resize": "224x224"}) <= 2, "bytes as they are say nothing to it"
    assert right(IMAGENET | {"layout": "nchw", "color": "bgr"}) < 18


@pytest.mark.real
def test_a_conversion_is_proven_on_photos_with_a_sidecar(sandbox: Sandbox) -> None:
    shutil.copy(models.mobilenetv2(), sandbox.folder / "net.onnx")
    photos = sandbox.folder / "photos"
    photos.mkdir()
    for photo in models.photos()[:3]:
        shutil.copy(photo, photos)
    lines = [f"{name}: [{value}]" if "," in value else f"{name}: {value}" for name, value in IMAGENET.items()]
    (photos / "preprocess.yaml").write_text("\n".join(lines))
    run = sandbox.run(
        "convert", "net.onnx", "--to", "tflite", "-o", "net.tflite", "--inputs", photos, "--json"
    )
    assert run.code == 0, run.stderr
    report = run.document["artifacts"][0]["report"]
    assert report["verdict"] == "proven"
    assert [fed["label"] for fed in report["fed"]] == [photo.name for photo in models.photos()[:3]]
    (note,) = report["notes"]
    assert note.startswith("preprocessing of images: resize=256, crop=224, scale=0.00392")


def test_images_are_fed_and_named_in_the_report(sandbox: Sandbox, pair: list[str]) -> None:
    digits(sandbox.folder / "in", 4)
    run = sandbox.run(
        "validate", *pair, "--inputs", "in", "--preprocess", "scale=1/16", "--samples", "2", "--json"
    )
    assert run.code == 0, run.stderr
    report = run.document["artifacts"][0]["report"]
    assert [(fed["label"], fed["source"]) for fed in report["fed"]] == [
        ("d0.png", "samples"),
        ("d1.png", "samples"),
    ]
    assert "preprocessing of images: scale=0.0625" in report["notes"]


def bad(sandbox: Sandbox, pair: list[str], *options: str) -> Outcome:
    return sandbox.run("validate", *pair, "--inputs", "in", *options)


def test_bad_inputs_end_with_exit_4_and_bad_options_with_exit_2(sandbox: Sandbox, pair: list[str]) -> None:
    folder = digits(sandbox.folder / "in", 2, (10, 12))
    sizes = bad(sandbox, pair)
    assert sizes.code == 4
    assert "d0.png is 10x12" in " ".join(sizes.stderr.split())
    unknown = bad(sandbox, pair, "--preprocess", "normalise=1")
    assert unknown.code == 2
    assert "the settings are resize, interpolation, crop, layout, color, scale, mean, std" in " ".join(
        unknown.stderr.split()
    )
    (folder / "preprocess.yaml").write_text("resize: big")
    assert bad(sandbox, pair).code == 4
    (folder / "preprocess.yaml").write_text("resize: 8x8")
    (folder / "d1.png").write_bytes((folder / "d0.png").read_bytes()[:60])
    torn = bad(sandbox, pair)
    assert torn.code == 4
    assert "d1.png cannot be read" in torn.stderr
    for path in folder.glob("*.png"):
        path.unlink()
    empty = bad(sandbox, pair)
    assert empty.code == 4
    assert "holds no inputs: preprocess.yaml cannot be read as inputs" in " ".join(empty.stderr.split())
    (folder / "preprocess.yaml").unlink()
    np.savez(folder / "d.npz", image=np.ones((1, 1, 8, 8), np.float32))
    arrays = bad(sandbox, pair, "--preprocess", "scale=1/16")
    assert arrays.code == 2
    assert "--preprocess applies to images and audio, and in has none; leave it out" in arrays.stderr


def test_preprocessing_without_a_folder_is_wrong_usage(sandbox: Sandbox, pair: list[str]) -> None:
    run = sandbox.run("validate", *pair, "--preprocess", "scale=1/255")
    assert run.code == 2
    assert "--preprocess is for images in --inputs" in run.stderr


def test_a_state_that_the_model_does_not_have_is_wrong_usage(sandbox: Sandbox, pair: list[str]) -> None:
    run = sandbox.run("validate", *pair, "--state", "h=hn")
    assert run.code == 2
    assert "no input 'h'" in run.stderr
