"""A fault in an optimized model is the first difference, and what the optimizer itself changed is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.inspection.comparison import Change, Comparison, compare_models
from onnxport.inspection.comparison.rewritten import compare_rewritten
from tests.inspection.test_forms import DIGITS, FAULTS, Fault, attribute_of, node_of

# Two residual blocks with a normalization, an activation of several nodes, and a factor.
BLOCKS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 6, 6] x) => (float[1, 3] y)
    <float three = {3}, float zero = {0}, float six = {6}, int64[2] flat = {1, 16}> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w1)  an = BatchNormalization (a, s1, b1, m, v)  ar = Relu (an)
    b = Conv <pads = [1, 1, 1, 1]> (ar, w2)  bn = BatchNormalization (b, s2, b2, m, v)
    c = Add (bn, x)  cr = Relu (c)
    d = Conv <pads = [1, 1, 1, 1]> (cr, w3)  dn = BatchNormalization (d, s1, b2, m, v)
    e = Add (READ, cr)  er = Relu (e)
    h1 = Add (er, three)  h2 = Clip (h1, zero, six)  h3 = Mul (er, h2)  h = Div (h3, six)
    p = MaxPool <kernel_shape = [3, 3], strides = [3, 3]> (h)  t = Transpose <perm = [0, 2, 3, 1]> (p)
    f = Reshape (t, flat)  k = Gemm (f, w4, b4)  y = Softmax (k)
}"""


def blocks(path: Path, read: str = "dn") -> onnx.ModelProto:
    model = onnx.parser.parse_model(BLOCKS.replace("READ", read))
    draw = np.random.default_rng(3)
    shapes = {"w1": (4, 4, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 4, 3, 3), "w4": (16, 3), "b4": (3,)}
    shapes |= dict.fromkeys(("s1", "b1", "s2", "b2", "m"), (4,))
    model.graph.initializer.extend(
        numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    )
    variance = draw.uniform(0.01, 2, 4).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(variance, "v"))
    onnx.save(model, path)
    return model


def compared(right: Path, wrong: Path, folder: Path) -> Comparison:
    made = folder / "optimized.onnx"
    onnxport.optimize_model(wrong, made, validate=False)
    draw = np.random.default_rng(0)
    sets: list[Feeds] = [
        {
            spec.name: draw.standard_normal(
                [each if isinstance(each, int) else 1 for each in spec.shape]
            ).astype(np.float32)
            for spec in Model.load(right).inputs
        }
    ]
    return compare_rewritten(
        Model.load(right), Artifact.open(made), sets, compare_models(Model.load(right), Model.load(made))
    )


def first(found: Comparison) -> Change:
    return next(each for each in found.changes if each.kind != "stored")


def test_what_an_optimizer_fuses_is_no_change(tmp_path: Path) -> None:
    blocks(tmp_path / "right.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "right.onnx", tmp_path)
    assert [each for each in found.changes if each.kind != "stored"] == []
    fused = [[node.op for node in each.first] for each in found.became]
    assert ["Conv", "BatchNormalization", "Relu"] in fused


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named_before_what_is_fused(fault: Fault, tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    name = fault(model)
    onnx.save(model, tmp_path / "wrong.onnx")
    assert first(compared(DIGITS, tmp_path / "wrong.onnx", tmp_path)).node.name == name


def test_a_sum_that_is_left_out_is_named_before_what_only_it_read(tmp_path: Path) -> None:
    blocks(tmp_path / "right.onnx")
    model = blocks(tmp_path / "wrong.onnx")
    node_of(model, "Add", 1).CopyFrom(onnx.helper.make_node("Identity", ["cr"], ["e"]))
    onnx.save(model, tmp_path / "wrong.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)
    assert first(found).node.value in ("e", "dn")


def test_another_epsilon_is_the_normalization_and_not_the_factor_behind_it(tmp_path: Path) -> None:
    model = blocks(tmp_path / "right.onnx", "dm")
    node = onnx.helper.make_node("Mul", ["dn", "m4"], ["dm"])
    model.graph.node.insert([each.output[0] for each in model.graph.node].index("e"), node)
    factors = np.array([0.5, 2, 3, 0.7], np.float32).reshape(4, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(factors, "m4"))
    onnx.save(model, tmp_path / "right.onnx")
    norm = node_of(model, "BatchNormalization", 2)
    norm.attribute.append(onnx.helper.make_attribute("epsilon", 1e-3))
    onnx.save(model, tmp_path / "wrong.onnx")
    assert first(compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)).node.value == "dn"


def test_weights_of_another_type_are_the_product_and_not_the_normalization(tmp_path: Path) -> None:
    blocks(tmp_path / "right.onnx")
    model = blocks(tmp_path / "wrong.onnx")
    weight = next(each for each in model.graph.initializer if each.name == "w2")
    rounded = numpy_helper.to_array(weight).astype(np.float16).astype(np.float32)
    weight.CopyFrom(numpy_helper.from_array(rounded, "w2"))
    onnx.save(model, tmp_path / "wrong.onnx")
    assert first(compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)).node.value == "b"


def test_a_value_that_is_read_too_early_is_a_change_of_its_reader(tmp_path: Path) -> None:
    """The sum before the Relu, which others read as it should be."""
    blocks(tmp_path / "right.onnx")
    model = blocks(tmp_path / "wrong.onnx")
    node_of(model, "Conv", 2).input[0] = "c"
    onnx.save(model, tmp_path / "wrong.onnx")
    assert first(compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)).node.value == "d"


def test_axes_in_another_order_are_those_of_the_transpose(tmp_path: Path) -> None:
    blocks(tmp_path / "right.onnx")
    model = blocks(tmp_path / "wrong.onnx")
    attribute_of(node_of(model, "Transpose"), "perm").ints[:] = [0, 3, 2, 1]
    onnx.save(model, tmp_path / "wrong.onnx")
    assert first(compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)).node.value == "t"


@pytest.mark.parametrize("is_swapped", [False, True])
def test_products_in_each_others_place_are_those_of_their_reader(is_swapped: bool, tmp_path: Path) -> None:
    """The inner Concat becomes a part of the outer one."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 4, 4] x) => (float[1, 8, 4, 4] y) {
        r = Sigmoid (x)  a = Conv (r, w1)  b = Conv (r, w2)  c = Concat <axis = 1> (ORDER)
        y = Concat <axis = 1> (c, a, x)
    }"""
    for name, order in (("right", "a, b"), ("wrong", "b, a" if is_swapped else "a, b")):
        model = onnx.parser.parse_model(text.replace("ORDER", order))
        for weight, seed in (("w1", 1), ("w2", 2)):
            draw = np.random.default_rng(seed)
            array = draw.standard_normal((2, 2, 1, 1)).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, weight))
        onnx.save(model, tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", tmp_path)
    named = [each.node.value for each in found.changes if each.kind != "stored"]
    assert named[:1] == (["c"] if is_swapped else [])
