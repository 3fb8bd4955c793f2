"""The plan of a quantized graph: which nodes compute in integers, which stay in float, and how they are named."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnx_ir.passes import common

from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import place
from onnxport.quantize.placement.plan import ALONE, LIGHT, Placement

_PARAMS = QuantizeParams.model_construct(precision="int8")


def plan(text: str, params: QuantizeParams = _PARAMS, **weights: tuple[int, ...]) -> Placement:
    """Plan a graph in ONNX's own notation, with weights of ones; its inferred shapes are the plan's."""
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, shape in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    model = ir.from_proto(parsed)
    common.ShapeInferencePass()(model)
    return place(model.graph, params)


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


@pytest.mark.parametrize(
    ("nodes", "is_quantized"),
    [
        # 9 multiplications for a number that is read and one that is written; 8 for one and an eighth of one.
        ("[conv] b = Conv <group = 8, pads = [1, 1, 1, 1]> (a, each)", False),
        ("[conv] b = Conv (a, wide)", False),
        ("[conv] c = Conv (a, wide) [relu] b = Relu (c)", False),
        # Beside another product it needs a conversion less, or none.
        ("[conv] c = Conv (a, wide) [next] b = Conv (c, all)", True),
        ("[first] c = Conv (a, wide) [second] d = Conv (c, all) [conv] b = Conv <group = 64> (d, own)", True),
        ("[conv] b = Conv (a, large)", True),
    ],
)
def test_a_product_of_few_multiplications_is_in_float_between_floats(nodes: str, is_quantized: bool) -> None:
    found = plan(
        f"""between (float[1,8,32,32] x) => (float[n,c,h,w] y, float[n,e,i,j] z) {{
            [before] a = Softplus (x)
            {nodes}
            [behind] y = Softplus (b)
            [other] z = Conv (x, large)
        }}""",
        each=(8, 1, 3, 3),
        wide=(64, 8, 1, 1),
        all=(64, 64, 1, 1),
        own=(64, 1, 1, 1),
        large=(8, 8, 5, 5),
    )
    assert ("conv" in found.unit) == is_quantized
    assert (found.floats.get("conv") == LIGHT) == (not is_quantized)


def test_a_network_of_such_products_alone_is_quantized() -> None:
    found = plan(
        "lone (float[1,8,32,32] x) => (float[n,c,h,w] y) { [conv] y = Conv (x, wide) }", wide=(64, 8, 1, 1)
    )
    assert list(found.unit) == ["conv"]
    assert not found.without({"conv"}, "it loses too much").units


def test_activations_of_16_bits_are_for_devices_that_compute_in_nothing_else() -> None:
    found = plan(
        """lone (float[1,8,32,32] x) => (float[n,c,h,w] y, float[n,e,i,j] z) {
            [conv] y = Conv (x, wide)
            [other] z = Conv (x, large)
        }""",
        params=_PARAMS.model_copy(update={"precision": "int16x8"}),
        wide=(64, 8, 1, 1),
        large=(8, 8, 5, 5),
    )
    assert "conv" in found.unit
