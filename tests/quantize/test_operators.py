"""Every operator that the plan calls an integer one is one in ONNX Runtime: nothing between two Conv is in float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxport.quantize.placement.operators import KERNELS, PRODUCTS
from tests.quantize.small import case

# Operator to nodes that make `b` of `a`, float32[1,4,8,8] both in and out, but for their size.
_KERNELS = {
    "Add": "b = Add (a, a)",
    "AveragePool": "b = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)",
    "Concat": "b = Concat <axis = 2> (a, a)",
    "DepthToSpace": "c = Concat <axis = 1> (a, a, a, a) b = DepthToSpace <blocksize = 2> (c)",
    "Expand": "shape = Constant <value_ints = [2, 4, 8, 8]> () b = Expand (a, shape)",
    "Flatten": "f = Flatten <axis = 1> (a) s = Constant <value_ints = [1, 4, 8, 8]> () b = Reshape (f, s)",
    "Gather": "i = Constant <value_ints = [3, 1, 0, 2]> () b = Gather <axis = 1> (a, i)",
    "GlobalAveragePool": "b = GlobalAveragePool (a)",
    "Identity": "b = Identity (a)",
    "LeakyRelu": "b = LeakyRelu <alpha = 0.1> (a)",
    "MaxPool": "b = MaxPool <kernel_shape = [2, 2]> (a)",
    "Mul": "b = Mul (a, a)",
    "ReduceMax": "b = ReduceMax <axes = [2]> (a)",
    "Reshape": "s = Constant <value_ints = [1, 4, 16, 4]> () b = Reshape (a, s)",
    "Resize": (
        "s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> () "
        'b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (a, , s)'
    ),
    "Sigmoid": "b = Sigmoid (a)",
    "Slice": ("i = Constant <value_ints = [2]> () j = Constant <value_ints = [6]> () b = Slice (a, i, j, i)"),
    "Softmax": "b = Softmax <axis = 1> (a)",
    "Split": "s = Constant <value_ints = [2, 6]> () b, c = Split <axis = 2> (a, s)",
    "Squeeze": ("i = Constant <value_ints = [0]> () s = Squeeze (a, i) m = Mul (s, s) b = Unsqueeze (m, i)"),
    "Tile": "r = Constant <value_ints = [1, 1, 1, 2]> () b = Tile (a, r)",
    "Transpose": "b = Transpose <perm = [0, 1, 3, 2]> (a)",
    "Unsqueeze": (
        "one = Constant <value_ints = [1]> () s = Unsqueeze (a, one) m = Mul (s, s) b = Squeeze (m, one)"
    ),
    # Forms of others.
    "a constant added": "b = Add (a, constant)",
    "a constant multiplied by": "b = Mul (a, constant)",
    "a constant subtracted": "m = MaxPool <kernel_shape = [2, 2]> (a) b = Sub (m, constant)",
    "a number multiplied by": "m = MaxPool <kernel_shape = [2, 2]> (a) b = Mul (m, number)",
    "a number divided by": "m = MaxPool <kernel_shape = [2, 2]> (a) b = Div (m, number)",
    "a number multiplied by, twice": "m = MaxPool <kernel_shape = [2, 2]> (a) n = Mul (m, number) b = Div (n, six)",
    "HardSigmoid": "b = HardSigmoid <alpha = 0.2, beta = 0.5> (a)",
    "Relu": "b = Relu (a)",
    "Relu6": "b = Clip (a, zero, six)",
    "Relu behind Add": "m = MaxPool <kernel_shape = [1, 1]> (a) s = Add (m, a) b = Relu (s)",
    "SiLU": "s = Sigmoid (a) b = Mul (a, s)",
}
_INTEGERS = frozenset(
    (
        "Concat DepthToSpace DequantizeLinear Expand Flatten Gather Identity MaxPool NhwcMaxPool QGemm QLinearAdd "
        "QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMatMul "
        "QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear ReduceMax Reshape Resize Slice Split Squeeze Tile "
        "Transpose Unsqueeze"
    ).split()
)
_RNG = np.random.default_rng(3)
_INITIALIZERS = {
    "first": _RNG.normal(size=(4, 3, 3, 3)).astype(np.float32),
    "second": _RNG.normal(size=(5, 4, 1, 1)).astype(np.float32),
    "third": _RNG.normal(size=(5, 4, 3, 3)).astype(np.float32),
    "constant": _RNG.normal(size=(4, 1, 1)).astype(np.float32),
    "number": np.float32(0.7),
    "zero": np.float32(0),
    "six": np.float32(6),
}


@pytest.mark.parametrize("activations", ["u8", "s8"])
@pytest.mark.parametrize("name", _KERNELS)
def test_between_two_convolutions_all_is_integers(name: str, activations: str, tmp_path: Path) -> None:
    made = case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[n,c,h,w] y) {{
            a = Conv (x, first)
            {_KERNELS[name]}
            y = Conv (b, second)
        }}""",
        tmp_path,
        initializers=_INITIALIZERS,
        activations=activations,
    )
    # On x86 ONNX Runtime leaves signed tensors with several users in float unless told that it need not.
    found = made.operators(int8_allowed=activations == "s8")
    assert set(found) <= _INTEGERS
    # One at the border, and one for each operand of QLinear operators that are two different tensors: none more.
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 1)
    assert made.sqnr > 25


@pytest.mark.parametrize(
    "nodes",
    [
        "b = HardSwish (a)",
        "h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (a) b = Mul (a, h)",
        "t = Add (three, a) u = Clip (t, zero, six) v = Mul (a, u) b = Div (v, six)",
    ],
)
def test_a_hard_swish_is_computed_in_float_between_two_conversions(nodes: str, tmp_path: Path) -> None:
    made = case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[n,c,h,w] y) {{
            a = Conv (x, large)
            {nodes}
            m = Mul (number, b)
            s = Add (m, number)
            y = Conv <pads = [2, 2, 2, 2]> (s, heavy)
        }}""",
        tmp_path,
        initializers=_INITIALIZERS
        | {
            "three": np.float32(3),
            # With less to multiply they would stay in float, as what stands between them does.
            "large": _RNG.normal(size=(4, 3, 5, 5)).astype(np.float32),
            "heavy": _RNG.normal(size=(5, 4, 5, 5)).astype(np.float32),
        },
    )
    found = made.operators()
    assert (found["HardSigmoid"], found["Mul"]) == (1, 1)  # its own
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (2, 2)
    assert found["QLinearConv"] == 2
    assert "Add" not in found  # it is a shift of the grid, and for what the grid cannot say, of the bias
    assert made.sqnr > 30


def test_no_step_goes_to_what_a_hard_swish_makes_zero_of(tmp_path: Path) -> None:
    shifts = np.float32([-900, 0, 0, 0])
    made = case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[n,c,h,w] y) {
            a = Conv (x, first, shifts)
            b = HardSwish (a)
            y = Conv (b, third)
        }""",
        tmp_path,
        initializers=_INITIALIZERS | {"shifts": shifts},
    )
    assert made.sqnr > 30


def test_what_others_read_beside_a_hard_swish_keeps_its_range(tmp_path: Path) -> None:
    made = case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[n,c,h,w] y, float[n,c,h,w] z) {
            a = Conv (x, first, shifts)
            b = HardSwish (a)
            y = Conv (a, third)
            z = Conv (b, third)
        }""",
        tmp_path,
        initializers=_INITIALIZERS | {"shifts": np.full(4, -9, np.float32)},
    )
    assert made.sqnr > 30


def test_every_kernel_of_the_table_is_tried() -> None:
    assert set(KERNELS) <= set(_KERNELS)
    assert set(PRODUCTS) == {"Conv", "Gemm", "MatMul"}


@pytest.mark.parametrize("summand", ["state", "rows"])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_that_adds_no_bias_is_a_product_and_a_sum(
    transposed: int, summand: str, tmp_path: Path
) -> None:
    made = case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[3,4] x, float[3,4] h) => (float[3,4] y) {{
            state = Gemm (h, u, row)
            s = Gemm <transB = {transposed}> (x, w, {summand})
            y = Gemm (s, u, row)
        }}""",
        tmp_path,
        initializers={
            **{name: _RNG.normal(size=(4, 4)).astype(np.float32) for name in "wu"},
            "row": _RNG.normal(size=4).astype(np.float32),
            "rows": _RNG.normal(size=(3, 4)).astype(np.float32),
        },
    )
    found = made.operators()
    assert found["QGemm"] == (3 if summand == "state" else 2)
    assert found["QLinearAdd"] == 1
    assert made.sqnr > 30


def test_weights_of_a_transposed_convolution_are_rounded_here_and_not_by_the_runtime(tmp_path: Path) -> None:
    """ONNX Runtime rounds those that it finds in floats between integers, with one scale for all channels."""
    upsampling = _RNG.normal(size=(4, 4, 2, 2)).astype(np.float32)
    made = case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[1,5,h,w] y) {
            a = Conv (x, first)
            t = ConvTranspose <strides = [2, 2]> (a, upsampling)
            y = Conv (t, second)
        }""",
        tmp_path,
        initializers={**_INITIALIZERS, "upsampling": upsampling},
    )
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (given,), (stored,) = (
        onnxruntime.InferenceSession(made.path, options).run(None, made.feeds[0]) for options in (None, plain)
    )
    np.testing.assert_array_equal(given, stored)
