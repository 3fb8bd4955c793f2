"""The plan of a quantized graph: which nodes compute in integers, which stay in float, and how they are named."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import place
from onnxport.quantize.placement.plan import ALONE, Placement

_PARAMS = QuantizeParams.model_construct(precision="int8")


def plan(text: str) -> Placement:
    """Plan a graph in ONNX's own notation; its inferred shapes are the plan's."""
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    common.ShapeInferencePass()(model)
    return place(model.graph, _PARAMS)


def test_a_product_of_two_activations_is_planned_and_restored_by_its_name() -> None:
    found = plan(
        """attention (float[1,4,2] x) => (float[1,4,4] y)
        <float[2,4] q = {1, 2, 3, 4, 5, 6, 7, 8}, float[2,4] k = {8, 7, 6, 5, 4, 3, 2, 1}> {
            [queries] a = MatMul (x, q)
            [keys] b = MatMul (x, k)
            [turned] t = Transpose <perm = [0, 2, 1]> (b)
            [scores] y = MatMul (a, t)
        }"""
    )
    assert {unit.node: unit.reads for unit in found.units} == {
        "queries": ("x",),
        "keys": ("x",),
        "turned": ("b",),
        "scores": ("a", "t"),
    }
    left = found.without({"scores"}, "it loses too much")
    assert list(left.unit) == ["queries", "keys"]
    assert left.floats == {"scores": "it loses too much", "turned": ALONE}


_GATED = """gated (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {{1, 0, 0, 1}}> {{
    [first] a = Conv (x, w)
    {between}
    [gated] m = Mul (map, gate)
    [second] y = Conv (m, w)
}}"""


def test_a_gate_of_one_number_per_channel_may_be_in_float() -> None:
    """Quantizing it costs nothing; the map that it scales has to be in integers already."""
    found = plan(
        _GATED.format(
            between="map = Identity (a) [mean] s = GlobalAveragePool (a) [curve] gate = Softplus (s)"
        )
    )
    assert "gated" in found.unit
    assert set(found.floats) == {"mean", "curve"}
    found = plan(
        _GATED.format(
            between="[curve] map = Softplus (a) [mean] s = GlobalAveragePool (a) [gate] gate = Sigmoid (s)"
        )
    )
    assert set(found.unit) == {"first", "second"}


@pytest.mark.parametrize(
    ("limits", "reads", "expected"),
    [
        ("Relu", "t = Mul (u, a)", None),  # it has no upper bound
        ("Clip", "t = Mul (u, a)", (0, 6)),
        ("Clip", "v = Mul (u, half) t = Mul (v, a)", (0, 6)),
        ("Clip", "t = MaxPool <kernel_shape = [1, 1]> (u)", None),
        ("Clip", "v = Mul (u, half) t = MaxPool <kernel_shape = [1, 1]> (v)", None),
    ],
)
def test_what_is_clipped_and_multiplies_another_tensor_has_the_grid_of_its_bounds(
    limits: str, reads: str, expected: tuple[float, float] | None
) -> None:
    bounds = ", zero, six" if limits == "Clip" else ""
    found = plan(
        f"""gated (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2,2,1,1] w = {{1, 0, 0, 1}}, float zero = {{0}}, float six = {{6}}, float half = {{0.5}}> {{
            [other] a = Conv (x, w)
            [first] c = Conv (x, w)
            [limit] u = {limits} (c{bounds})
            {reads}
            [last] y = Conv (t, w)
        }}"""
    )
    fixed = found.unit["first"].fixed
    assert (fixed and (fixed.low, fixed.high)) == expected
