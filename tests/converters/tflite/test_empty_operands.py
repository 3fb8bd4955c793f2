"""Nothing selected, no box found: kernels that fail on operands without elements get some, at any number of rows."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from onnxport.formats.model import Model
from tests.conformance.tflite import Conformance

SELECT = """
    half = Constant <value_float = 0.5> ()
    above = Greater (s, half)
    places = NonZero (above)
    axes = Constant <value_ints = [0]> ()
    numbers = Squeeze (places, axes)
    rows = Gather <axis = 0> (x, numbers)
"""
# Shape of x, the output, and what is done to the rows of x whose scores are above a half.
CASES = {
    "rows on the left": ([8, 6], "float[n, 8] y", "t = Transpose <perm = [1, 0]> (x)  y = MatMul (rows, t)"),
    "columns on the right": (
        [8, 6],
        "float[8, n] y",
        "r = Transpose <perm = [1, 0]> (rows)  y = MatMul (x, r)",
    ),
    "the sum's axis": ([8, 6], "float[6, 6] y", "r = Transpose <perm = [1, 0]> (rows)  y = MatMul (r, rows)"),
    "convolution": ([8, 2, 5, 5], "float[n, 4, 5, 5] y", "y = Conv <pads = [1, 1, 1, 1]> (rows, k)"),
    "convolution of each channel": (
        [8, 4, 5, 5],
        "float[n, 4, 5, 5] y",
        "y = Conv <pads = [1, 1, 1, 1], group = 2> (rows, k)",
    ),
    "maximum over windows": (
        [8, 2, 5, 5],
        "float[n, 2, 4, 4] y",
        "y = MaxPool <kernel_shape = [2, 2]> (rows)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_rows_may_be_selected(conformance: Conformance, case: str) -> None:
    shape, output, nodes = CASES[case]
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float{shape} x, float[8] s) => ({output}) {{ {SELECT} {nodes} }}"""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(5)
    if "Conv" in nodes:
        kernels = random.standard_normal((4, 2, 3, 3)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(kernels, "k"))
    x = random.standard_normal(shape).astype(np.float32)
    feeds = [{"x": x, "s": np.float32(np.arange(8) < count)} for count in (3, 0, 8)]
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    model = Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        (expected,) = session.run(None, feed)
        assert answer["y"].shape == expected.shape
        np.testing.assert_allclose(answer["y"], expected, atol=1e-5)
