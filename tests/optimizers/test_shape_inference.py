"""Shapes that ONNX's inference does not find."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxport.formats.model import Model, dims_of
from onnxport.optimizers import shape_inference
from onnxport.optimizers.simplification.symbolic_dims import name_open_dimensions

# As torch exports x.expand(like.shape): -1 would keep a dimension of x.
EXPAND = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 1] x, float[N, 3] like) => (float[a, b] y) <int64 minus = {-1}> {
    shape = Shape (like)
    rank = Shape (shape)
    ones = ConstantOfShape <value = int64[1] {1}> (rank)
    kept = Mul (ones, minus)
    keeps = Equal (shape, kept)
    target = Where (keeps, ones, shape)
    wide = Expand (x, target)
    y = Relu (wide)
}"""


def test_the_target_of_an_expansion_is_followed_through_its_arithmetic() -> None:
    model = Model(ir.from_proto(onnx.parser.parse_model(EXPAND)))
    shape_inference.infer(model)
    (wide,) = (value for node in model.graph for value in node.outputs if value.name == "wide")
    assert dims_of(wide)[1] == 3
    name_open_dimensions(model)
    assert dims_of(wide) == ("N", 3)


# A number per row, added to the rows: ONNX's inference makes up a symbol for the rows of `places` and of `moved`.
ROWS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 3] x, float[M, 3] z) => (float[a, b] y) <int64 zero = {0}, int64 one = {1}, int64[1] axis = {1}> {
    shape = Shape (x)
    rows = Gather (shape, zero)
    places = Range (zero, rows, one)
    column = Unsqueeze (places, axis)
    numbers = Cast <to = 1> (column)
    moved = Add (numbers, x)
    either = Add (x, z)
    y = Add (moved, either)
}"""


def test_open_dimensions_that_follow_from_an_input_have_its_name() -> None:
    model = Model(ir.from_proto(onnx.parser.parse_model(ROWS)))
    shape_inference.infer(model)
    values = {value.name: value for node in model.graph for value in node.outputs}
    assert dims_of(values["moved"])[0] not in ("N", 3)
    name_open_dimensions(model)
    assert dims_of(values["places"]) == ("N",)
    assert dims_of(values["moved"]) == ("N", 3)
    assert dims_of(values["either"])[0] not in ("N", "M")  # one of them may be 1
