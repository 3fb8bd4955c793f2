"""What the linter says of samples: nothing of right ones, whatever the network; what is wrong with wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fixtures import samples
from onnxport.formats.model import Model
from onnxport.quantize.calibration.sample_checks import Findings, check_samples
from onnxport.samples.readers import SampleFile, find_samples

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Feeds = Mapping[str, Array]

COUNT = 32
PICTURES = [key for key in samples.SOURCES if isinstance(samples.SOURCES[key], samples.Pictures)]
# Networks that keep their BatchNormalization, and photos to tell the order of channels by.
NORMED = ["mobilenetv2/mobilenetv2.onnx", "efficientnet_lite0/efficientnet_lite0.onnx"]


def files(folder: Path, model: Model, feeds: list[Feeds]) -> tuple[SampleFile, ...]:
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(feeds):
        np.savez(folder / f"{number:03}.npz", **each)  # type: ignore[arg-type]
    return find_samples(folder, model.inputs, 10**6)


def linted(key: str, folder: Path, change: Callable[[Floats], Floats] = lambda pixels: pixels) -> Findings:
    """The verdict on the calibration samples of a network, its pictures changed as bytes in RGB or BGR."""
    model = Model.load(samples.path(key))
    source = samples.SOURCES[key]
    feeds: list[Feeds] = []
    for number in range(COUNT):
        feed = source("calibration", number)
        if isinstance(source, samples.Pictures):
            mean, std = (np.reshape(np.float32(each), (1, -1, 1, 1)) for each in (source.mean, source.std))
            feed = {source.input: change(np.rint(feed[source.input] * std + mean))}
            if change.__name__ in ("<lambda>", "turned"):
                feed = {source.input: (feed[source.input] - mean) / std}
        feeds.append(feed)
    return check_samples(model, files(folder, model, feeds))


@pytest.mark.real
@pytest.mark.parametrize("key", samples.SOURCES)
def test_right_samples_of_a_real_network_are_passed_over_in_silence(key: str, tmp_path: Path) -> None:
    found = linted(key, tmp_path)
    print(key, found.facts)
    assert found.findings == ()


def as_bytes(pixels: Floats) -> Floats:
    return pixels


def as_numbers_to_1(pixels: Floats) -> Floats:
    return pixels / 255


def turned(pixels: Floats) -> Floats:
    return np.ascontiguousarray(pixels[:, ::-1])


@pytest.mark.real
@pytest.mark.parametrize("key", [key for key in PICTURES if not key.startswith("yunet")])
def test_bytes_fed_to_a_network_that_wants_them_normalized_are_told(key: str, tmp_path: Path) -> None:
    (finding,) = linted(key, tmp_path, as_bytes).findings
    assert "has values from 0 to 255" in finding
    assert "trained on" in finding or "the spread of training" in finding


@pytest.mark.real
def test_numbers_to_1_fed_to_a_network_that_wants_bytes_are_told(tmp_path: Path) -> None:
    (finding,) = linted("yunet/face_detection_yunet_2023mar.onnx", tmp_path, as_numbers_to_1).findings
    assert "has values from 0 to 1," in finding


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "says"),
    [(NORMED[0], "ImageNet's mean and deviation; "), (NORMED[1], "numbers -1..1; ")],
)
def test_missing_mean_and_std_are_told_by_the_running_statistics_with_the_options_that_mend_it(
    key: str, says: str, tmp_path: Path
) -> None:
    (finding,) = linted(key, tmp_path, as_numbers_to_1).findings
    assert says in finding
    assert "--preprocess scale=1/255 --preprocess mean=" in finding


@pytest.mark.real
@pytest.mark.parametrize("key", NORMED)
def test_the_other_order_of_channels_is_told(key: str, tmp_path: Path) -> None:
    (finding,) = linted(key, tmp_path, turned).findings
    assert "BGR for RGB" in finding


# ---- what needs no real network


def saved(folder: Path, graph: onnx.GraphProto) -> Model:
    path = folder / "model.onnx"
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path
    )
    return Model.load(path)


def adding(folder: Path, *names: str, op: str = "Add") -> Model:
    """y = the sum of all inputs, float32[N, 4] each."""
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in names]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])
    node = onnx.helper.make_node("Sum", list(names), ["y"])
    return saved(folder, onnx.helper.make_graph([node], "g", inputs, [output]))


def noise(count: int, *names: str) -> list[Feeds]:
    random = np.random.default_rng(0)
    return [{name: random.standard_normal((1, 4)).astype(np.float32) for name in names} for _ in range(count)]


def test_samples_that_repeat_are_counted_and_two_of_them_named(tmp_path: Path) -> None:
    feeds = noise(20, "x")
    feeds[7] = feeds[11] = feeds[3]
    model = adding(tmp_path, "x")
    (finding,) = check_samples(model, files(tmp_path / "in", model, feeds)).findings
    assert finding == "2 of 20 samples are duplicates: 007.npz equals 003.npz"


def test_a_sample_held_back_that_calibration_sees_counts_as_repeated(tmp_path: Path) -> None:
    model = adding(tmp_path, "x")
    feeds = noise(20, "x")
    found = files(tmp_path / "in", model, [*feeds, feeds[0]])
    assert check_samples(model, found[:20], found[20:]).findings == (
        "1 of 21 samples is a duplicate: 020.npz equals 000.npz",
    )
    assert check_samples(model, found[:20]).findings == ()


def test_rows_of_one_file_that_repeat_are_found(tmp_path: Path) -> None:
    model = adding(tmp_path, "x")
    rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    rows[9] = rows[2]
    np.savez(tmp_path / "all.npz", x=rows)
    (finding,) = check_samples(model, find_samples(tmp_path / "all.npz", model.inputs, 100)).findings
    assert finding == "1 of 30 samples is a duplicate: all.npz[9] equals all.npz[2]"


def test_few_samples_are_said_to_be_few_unless_they_are_batches(tmp_path: Path) -> None:
    model = adding(tmp_path, "x")
    (finding,) = check_samples(model, files(tmp_path / "in", model, noise(3, "x"))).findings
    assert finding.startswith("3 samples say little about the ranges")
    batch: list[Feeds] = [{"x": np.random.default_rng(1).standard_normal((64, 4)).astype(np.float32)}]
    assert check_samples(model, files(tmp_path / "batch", model, batch)).findings == ()


def test_an_input_that_is_the_same_throughout_is_named(tmp_path: Path) -> None:
    model = adding(tmp_path, "x", "mask")
    feeds = [{**each, "mask": np.zeros((1, 4), np.float32)} for each in noise(20, "x")]
    (finding,) = check_samples(model, files(tmp_path / "in", model, feeds)).findings
    assert finding == "the input 'mask' is always 0 in the 16 samples checked"


def test_blank_samples_are_named(tmp_path: Path) -> None:
    model = adding(tmp_path, "x")
    feeds = noise(16, "x")
    for number in range(2, 8):
        feeds[number] = {"x": np.full((1, 4), number, np.float32)}
    (finding,) = check_samples(model, files(tmp_path / "in", model, feeds)).findings
    assert finding.startswith("the input 'x' has a single value in 6 of 16 samples: 002.npz, 003.npz")


def test_a_state_that_no_file_gives_is_said_to_be_unseen(tmp_path: Path) -> None:
    model = adding(tmp_path, "x", "h")
    found = files(tmp_path / "in", model, noise(20, "x"))
    found = find_samples(tmp_path / "in", model.inputs, 100, optional=frozenset({"h"}))
    (finding,) = check_samples(model, found).findings
    assert finding.startswith("the state 'h' began with zeros in every sample")


def test_values_that_are_not_finite_are_left_to_the_calibration_that_names_them(tmp_path: Path) -> None:
    model = adding(tmp_path, "x")
    feeds = noise(12, "x")
    feeds[5] = {"x": np.array([[1, np.nan, np.inf, 0]], np.float32)}
    assert check_samples(model, files(tmp_path / "in", model, feeds)).findings == ()


def normed(folder: Path, mean: float, variance: float) -> Model:
    """A table whose features are normalized first."""
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])
    weights = {"s": 1.0, "b": 0.0, "m": mean, "v": variance}
    tensors = [
        onnx.numpy_helper.from_array(np.full(4, value, np.float32), name) for name, value in weights.items()
    ]
    node = onnx.helper.make_node("BatchNormalization", ["x", *weights], ["y"], name="bn")
    return saved(folder, onnx.helper.make_graph([node], "g", inputs, [output], tensors))


def test_features_far_from_the_running_statistics_are_told_where_it_is_no_image(tmp_path: Path) -> None:
    feeds = noise(20, "x")
    right = normed(tmp_path, 0.0, 1.0)
    found = files(tmp_path / "in", right, feeds)
    assert check_samples(right, found).findings == ()
    (finding,) = check_samples(normed(tmp_path, 0.0, 1e-4), found).findings
    assert "so the input of node 'bn' has 9" in finding
    assert "times the spread" in finding
