"""Operators on boxes and regions answer as ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

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
