"""Operators on boxes, regions and windows answer as ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from tests.converters.coreml.packages import convert, evaluate
from tests.converters.tflite.models import model_of, run_onnx


@pytest.mark.parametrize("threshold", [None, 0.2, 0.5])
def test_boxes_that_overlap_more_than_the_threshold_go(tmp_path: Path, threshold: float | None) -> None:
    """Neighbours overlap by 0.33, the second with the next but one by 0.67."""
    boxes = np.array([[[0, 0, 2, 2], [0, 1, 2, 3], [0, 1.4, 2, 3.4], [5, 5, 6, 6]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6], [0.1, 0.9, 0.2, 0.8]]], np.float32)
    constants = [numpy_helper.from_array(np.array([9]), "most")]
    names = ["boxes", "scores", "most"]
    if threshold is not None:
        constants.append(numpy_helper.from_array(np.array([threshold], np.float32), "threshold"))
        names.append("threshold")
    feeds = {"boxes": boxes, "scores": scores}
    model = model_of([helper.make_node("NonMaxSuppression", names, ["y"])], feeds, constants)
    convert(model, tmp_path / "m.mlpackage")
    answer = evaluate(tmp_path / "m.mlpackage", feeds)["y"]
    np.testing.assert_array_equal(answer, run_onnx(model, feeds)["y"])


def test_all_boxes_of_any_number_are_kept_up_to_a_number_that_a_note_names(tmp_path: Path) -> None:
    """As detectors keep all: max_output_boxes_per_class is the largest int64."""
    most = numpy_helper.from_array(np.array([np.iinfo(np.int64).max]), "most")
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "K", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1, "K"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [None, 3])],
        [most],
    )
    onnx.save(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]),
        tmp_path / "m.onnx",
    )
    made = onnxport.convert_model(tmp_path / "m.onnx", "coreml", minimum_target="iOS17")
    assert any("keeps at most 16,384 boxes" in note for note in made.run.artifacts[0].notes)
    random = np.random.default_rng(0)
    corners = random.uniform(0, 90, (1, 30, 2)).astype(np.float32)
    feeds = {
        "boxes": np.concatenate([corners, corners + 10], axis=2),
        "scores": random.random((1, 1, 30), np.float32),
    }
    answer = evaluate(made.path, feeds)["y"]
    np.testing.assert_array_equal(answer, run_onnx(Model.load(tmp_path / "m.onnx"), feeds)["y"])


@pytest.mark.parametrize("size", [1, 3])
def test_a_region_is_sampled_at_its_positions(tmp_path: Path, size: int) -> None:
    """Its centre for one element, its ends and what lies between for more (ONNX Resize-19, tf_crop_and_resize)."""
    feeds = {
        "x": np.random.default_rng(0).standard_normal((1, 2, 7, 9)).astype(np.float32),
        "region": np.array([0, 0, 0.3, 0.1, 1, 1, 0.9, 0.8], np.float32),
    }
    node = helper.make_node(
        "Resize",
        ["x", "region", "", "sizes"],
        ["y"],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    model = model_of([node], feeds, [numpy_helper.from_array(np.array([1, 2, size, size]), "sizes")])
    convert(model, tmp_path / "m.mlpackage")
    answer = evaluate(tmp_path / "m.mlpackage", feeds)["y"]
    np.testing.assert_allclose(answer, run_onnx(model, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_scales_may_come_at_run_time(tmp_path: Path) -> None:
    """As in a matting network, whose user chooses the resolution: coremltools rounded known floats to integers."""
    feeds = {
        "x": np.random.default_rng(0).standard_normal((1, 2, 6, 8)).astype(np.float32),
        "ratio": np.array([0.5], np.float32),
    }
    nodes = [
        helper.make_node("Concat", ["one", "one", "ratio", "ratio"], ["scales"], axis=0),
        helper.make_node(
            "Resize",
            ["x", "", "scales"],
            ["y"],
            mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel",
        ),
    ]
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    model = model_of(nodes, feeds, [one], open_dims={"x": (1, 2, "H", "W")})
    convert(model, tmp_path / "m.mlpackage")
    answer = evaluate(tmp_path / "m.mlpackage", feeds)["y"]
    np.testing.assert_allclose(answer, run_onnx(model, feeds)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attributes", [{"auto_pad": "SAME_LOWER"}, {"dilations": [2, 2], "pads": [1, 1, 0, 0]}]
)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_may_be_padded_in_front_alone(tmp_path: Path, op: str, attributes: dict[str, Any]) -> None:
    feeds = {"x": -np.random.default_rng(0).random((1, 2, 7, 9), np.float32)}
    model = model_of([helper.make_node(op, ["x"], ["y"], kernel_shape=[2, 2], **attributes)], feeds, [])
    convert(model, tmp_path / "m.mlpackage")
    answer = evaluate(tmp_path / "m.mlpackage", feeds)["y"]
    np.testing.assert_allclose(answer, run_onnx(model, feeds)["y"], rtol=1e-5)
