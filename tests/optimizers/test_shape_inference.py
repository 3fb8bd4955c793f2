"""Shapes that ONNX's inference does not find."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

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


# An Einsum as tf2onnx writes it: the leading sizes become one, as a product of what Shape gives; a Gather of places
# that only a run knows leaves nothing of a target but its length.
FLATTENED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4, 3, 5] x, int64[2] places) => (float[a, b, c] y, float[d, e] z) <
    int64[2] leading = {0, 1}, int64[1] last = {3}, int64[1] rest = {-1}, int64[1] first = {0}
> {
    shape = Shape (x)
    sizes = Gather (shape, leading)
    batches = ReduceProd <keepdims = 1> (sizes)
    columns = Gather (shape, last)
    target = Concat <axis = 0> (batches, rest, columns)
    flat = Reshape (x, target)
    y = Relu (flat)
    chosen = Gather (shape, places)
    crossed = Reshape (x, chosen)
    z = Relu (crossed)
    batch = Gather (shape, first)
    alone = ReduceProd (batch)
    pair = Concat <axis = 0> (alone, rest)
    rows = Reshape (x, pair)
}"""


def test_a_target_known_in_part_or_by_its_length_gives_a_rank() -> None:
    model = Model(ir.from_proto(onnx.parser.parse_model(FLATTENED)))
    shape_inference.infer(model)
    values = {value.name: value for node in model.graph for value in node.outputs}
    flat, crossed = dims_of(values["flat"]), dims_of(values["crossed"])
    assert len(flat) == 3
    assert flat[2] == 5
    assert not isinstance(flat[0], int)
    assert len(crossed) == 2
    assert dims_of(values["rows"])[1] == 60


def _stump(op: str, **attributes: object) -> Model:
    """A tree of two leaves, with its classes or targets."""
    node = onnx.helper.make_node(
        op,
        ["x"],
        ["label", "scores"] if op == "TreeEnsembleClassifier" else ["scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        **attributes,
    )
    value = onnx.helper.make_tensor_value_info
    outputs = [value("scores", onnx.TensorProto.FLOAT, None)]
    if op == "TreeEnsembleClassifier":
        outputs.insert(0, value("label", onnx.TensorProto.INT64, None))
    graph = onnx.helper.make_graph([node], "g", [value("x", onnx.TensorProto.FLOAT, [None, 2])], outputs)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return Model(ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)))


@pytest.mark.parametrize(
    ("op", "attributes", "width"),
    [
        (
            "TreeEnsembleClassifier",
            {
                "class_treeids": [0, 0],
                "class_nodeids": [1, 2],
                "class_ids": [0, 1],
                "class_weights": [1.0, 1.0],
                "classlabels_int64s": [3, 5, 8],
            },
            3,
        ),
        (
            "TreeEnsembleRegressor",
            {
                "target_treeids": [0, 0],
                "target_nodeids": [1, 2],
                "target_ids": [0, 0],
                "target_weights": [1.0, 2.0],
                "n_targets": 2,
            },
            2,
        ),
    ],
)
def test_shapes_of_trees_are_inferred_without_their_numbers(
    op: str, attributes: dict[str, object], width: int
) -> None:
    model = _stump(op, **attributes)
    (node,) = model.graph
    before = list(node.attributes.items())
    shape_inference.infer(model)
    assert list(node.attributes.items()) == before
    assert dims_of(node.outputs[-1])[1] == width
