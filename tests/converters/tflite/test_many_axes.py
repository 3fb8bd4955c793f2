"""More axes than TFLite's kernels take."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.conformance.tflite import Conformance
from tests.converters.tflite.models import model_of, run_onnx


def test_two_of_seven_axes_are_cut(conformance: Conformance) -> None:
    """STRIDED_SLICE takes five axes: neighbours that stay whole are joined, those that are cut are not."""
    feeds = {"x": np.arange(288, dtype=np.float32).reshape(2, 3, 2, 2, 3, 2, 2)}
    cut = {"starts": [1, 0], "ends": [3, 2], "axes": [1, 4]}
    constants = [numpy_helper.from_array(np.array(values), name) for name, values in cut.items()]
    model = model_of([helper.make_node("Slice", ["x", *cut], ["y"])], feeds, constants)
    (answer,) = conformance.convert_and_run(model, [feeds])
    np.testing.assert_array_equal(answer["y"], run_onnx(model, feeds)["y"])
