"""A fault in a model is the first difference to what was converted from it, under the name of its own node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.inspection.comparison import Comparison
from onnxport.inspection.comparison.forms import compare_forms

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
Fault = Callable[[onnx.ModelProto], str]


def node_of(model: onnx.ModelProto, op: str, number: int = 0) -> onnx.NodeProto:
    return [node for node in model.graph.node if node.op_type == op][number]


def attribute_of(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(each for each in node.attribute if each.name == name)


def leaking(model: onnx.ModelProto) -> str:
    node = node_of(model, "Relu")
    node.op_type = "LeakyRelu"
    return node.name


def without_activation(model: onnx.ModelProto) -> str:
    node = node_of(model, "Relu", 1)
    node.op_type = "Identity"
    return node.name


def other_padding(model: onnx.ModelProto) -> str:
    node = node_of(model, "Conv", 1)
    attribute_of(node, "pads").ints[:] = [2, 1, 0, 1]
    return node.name


def other_epsilon(model: onnx.ModelProto) -> str:
    node = node_of(model, "BatchNormalization")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("epsilon", 0.5))
    return node.name


def mean_for_maximum(model: onnx.ModelProto) -> str:
    node = node_of(model, "MaxPool")
    node.op_type = "AveragePool"
    return node.name


def one_channel_doubled(model: onnx.ModelProto) -> str:
    node = node_of(model, "Conv")
    weight = next(each for each in model.graph.initializer if each.name == node.input[1])
    numbers = numpy_helper.to_array(weight).copy()
    numbers[1] *= 2
    weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    return node.name


FAULTS: tuple[Fault, ...] = (
    *(leaking, without_activation, other_padding, other_epsilon, mean_for_maximum, one_channel_doubled),
)


def compared(
    right: Path, wrong: Path, target: str, folder: Path, batches: tuple[int, ...] = (1,)
) -> Comparison:
    form = folder / f"wrong.{target}"
    onnxport.convert_model(wrong, target, form, validate=False)
    spec = Model.load(right).inputs[0]
    sizes = [int(each) if isinstance(each, int) else 1 for each in spec.shape][1:]
    sets = [{spec.name: np.ones((batch, *sizes), np.float32)} for batch in batches]
    return compare_forms(Model.load(right), Artifact.open(form), sets)


@pytest.mark.parametrize("target", ["ort", "tflite"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named_by_its_own_node(fault: Fault, target: str, tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    name = fault(model)
    onnx.save(model, tmp_path / "wrong.onnx")
    found = compared(DIGITS, tmp_path / "wrong.onnx", target, tmp_path)
    first = next(each for each in found.changes if each.kind != "stored")
    assert first.node.name == name


def test_operands_in_another_order_are_those_of_their_own_node(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 8] y) {
        a = Sigmoid (x)  b = Tanh (x)  y = Concat <axis = 1> (ORDER)
    }"""
    for name, order in (("right", "a, b"), ("wrong", "b, a")):
        onnx.save(onnx.parser.parse_model(text.replace("ORDER", order)), tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "tflite", tmp_path)
    (change,) = [each for each in found.changes if each.kind != "stored"]
    assert (change.node.op, change.node.value) == ("Concat", "y")
    assert "in another order" in change.details[0].what


def test_a_node_that_is_left_out_is_named_and_not_its_reader(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) {
        a = Sigmoid (x)  b = Tanh (a)  y = Exp (READ)
    }"""
    for name, read in (("right", "b"), ("wrong", "a")):
        onnx.save(onnx.parser.parse_model(text.replace("READ", read)), tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "ort", tmp_path)
    (change,) = [each for each in found.changes if each.kind != "stored"]
    assert (change.node.op, change.node.value) == ("Tanh", "b")


def test_a_softmax_over_the_batch_shows_at_another_batch(tmp_path: Path) -> None:
    """Before opset 13 a softmax is over all axes from its own on; at batch 1 the first is no other than the second."""
    text = """<ir_version: 6, opset_import: ["" : 12]> g (float[n, 4] x) => (float[n, 4] y) {
        a = Sigmoid (x)  y = Softmax <axis = AXIS> (a)
    }"""
    for name, axis in (("right", "1"), ("wrong", "0")):
        onnx.save(onnx.parser.parse_model(text.replace("AXIS", axis)), tmp_path / f"{name}.onnx")
    pair = tmp_path / "right.onnx", tmp_path / "wrong.onnx"
    (change,) = [
        each for each in compared(*pair, "tflite", tmp_path, (1, 3)).changes if each.kind != "stored"
    ]
    assert (change.node.op, change.node.value) == ("Softmax", "y")


def test_a_shuffle_and_a_mean_that_leaves_padding_out_are_no_difference(tmp_path: Path) -> None:
    """As in ShuffleNet: the form has channels last, a PAD in front of the pool, and a factor behind it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 8, 8] x) => (float[1, 4, 4, 4] y)
        <int64[5] s = {1, 2, 2, 8, 8}, int64[4] t = {1, 4, 8, 8}> {
        r = Relu (x)  a = Reshape (r, s)  b = Transpose <perm = [0, ORDER, 3, 4]> (a)  c = Reshape (b, t)
        y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (c)
    }"""
    for name, order in (("right", "2, 1"), ("wrong", "1, 2")):
        onnx.save(onnx.parser.parse_model(text.replace("ORDER", order)), tmp_path / f"{name}.onnx")
    same = compared(tmp_path / "right.onnx", tmp_path / "right.onnx", "tflite", tmp_path)
    assert same.changes == ()
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "tflite", tmp_path)
    assert (found.changes[0].node.op, found.changes[0].node.value) == ("Transpose", "b")


def test_a_factor_that_is_left_out_is_named_and_not_the_sum_behind_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2, 1, 1] f = {0.5, 3}, float[2, 1, 1] s = {1, -1}> {
        a = Conv (x, w)  b = Mul (a, f)  y = Add (READ, s)
    }"""
    for name, read in (("right", "b"), ("wrong", "a")):
        onnx.save(onnx.parser.parse_model(text.replace("READ", read)), tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "tflite", tmp_path)
    (change,) = [each for each in found.changes if each.kind != "stored"]
    assert (change.node.op, change.node.value) == ("Mul", "b")


def test_a_sum_that_is_left_out_before_an_activation_is_named(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}> {
        c = Conv (x, w)  s = Add (c, x)  y = Relu (READ)
    }"""
    for name, read in (("right", "s"), ("wrong", "c")):
        onnx.save(onnx.parser.parse_model(text.replace("READ", read)), tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "tflite", tmp_path)
    assert found.changes[0].node.value == "s"


def test_a_loop_of_a_form_is_a_note_and_no_difference(tmp_path: Path) -> None:
    """A recurrent layer of many steps is a WHILE in TFLite, which is not written in ONNX here."""
    draw = np.random.default_rng(0)
    weights = {
        name: numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"w": (1, 12, 3), "r": (1, 12, 3)}.items()
    }
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], "layer", hidden_size=3)
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [100, 1, 3]), ("y", [100, 1, 1, 3]))
    ]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], list(weights.values()))
    right = tmp_path / "right.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), right)
    form = tmp_path / "right.tflite"
    onnxport.convert_model(right, "tflite", form, validate=False)
    found = compare_forms(Model.load(right), Artifact.open(form), [{"x": np.ones((100, 1, 3), np.float32)}])
    assert found.changes == ()
    assert any("WHILE" in note and "not compared" in note for note in found.notes)


# What TFLite and Core ML write in another form: an ELU of two parts, a triangle as a choice, sizes of a repetition.
OTHER_FORMS = {
    "Elu": "y = Elu <alpha = 0.5> (x)",
    "Softplus": "y = Softplus (x)",
    "Trilu": "y = Trilu (x)",
    "Expand": "s = Shape (x) e = Expand (x, s) r = ReduceMean <axes = [1]> (e) y = Sub (x, r)",
    "slices of a slice": "a = Slice (x, one, five, one) b = Slice (a, one, two, one) y = Neg (b)",
}


@pytest.mark.parametrize("target", ["ort", "tflite", "coreml"])
@pytest.mark.parametrize("name", OTHER_FORMS)
def test_another_form_of_the_same_numbers_is_no_difference(name: str, target: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[6, 6] x) => (float[N, M] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] five = {{5}}> {{ {OTHER_FORMS[name]} }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "right.onnx")
    assert drawn(tmp_path / "right.onnx", target, tmp_path).changes == ()


def test_an_order_that_the_inputs_do_not_show_is_a_difference(tmp_path: Path) -> None:
    """Of one number in all places nothing tells the order."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 4] x) => (float[1, 4, 4] y) {
        a = Sigmoid (x)  y = Transpose <perm = [0, ORDER]> (a)
    }"""
    for name, order in (("right", "2, 1"), ("wrong", "1, 2")):
        onnx.save(onnx.parser.parse_model(text.replace("ORDER", order)), tmp_path / f"{name}.onnx")
    found = compared(tmp_path / "right.onnx", tmp_path / "wrong.onnx", "tflite", tmp_path)
    assert [each.node.value for each in found.changes] == ["y"]


def test_a_branch_that_sizes_choose_is_no_difference(tmp_path: Path) -> None:
    """PyTorch guards a Squeeze so; a form has the branch that runs."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 1, 3] x) => (float[2, 3] y)
        <int64 place = {1}, int64[1] axis = {1}, int64 one = {1}> {
        a = Relu (x)  s = Shape (a)  d = Gather (s, place)  c = Equal (d, one)
        b = If (c) <then_branch = t () => (float[2, 3] p) { p = Squeeze (a, axis) },
                    else_branch = e () => (float[2, 1, 3] q) { q = Identity (a) }>
        y = OP (b)
    }"""
    for name, op in (("right", "Neg"), ("wrong", "Abs")):
        onnx.save(onnx.parser.parse_model(text.replace("OP", op)), tmp_path / f"{name}.onnx")
    right, wrong = tmp_path / "right.onnx", tmp_path / "wrong.onnx"
    assert drawn(right, "tflite", tmp_path).changes == ()
    assert [each.node.value for each in drawn(right, "tflite", tmp_path, wrong).changes] == ["y"]


def test_a_layer_whose_sequence_nobody_reads_is_named(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    shapes = {"w": (1, 12, 3), "r": (1, 12, 3), "b": (1, 24)}
    weights = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [4, 1, 3]), ("y", [1, 1, 3]))
    ]
    for name in ("right", "wrong"):
        if name == "wrong":
            weights["r"] = np.roll(weights["r"], 3, axis=1)
        node = helper.make_node("LSTM", ["x", *weights], ["all", "h"], "layer", hidden_size=3)
        last = helper.make_node("Neg", ["h"], ["y"])
        held = [numpy_helper.from_array(array, key) for key, array in weights.items()]
        graph = helper.make_graph([node, last], "g", ends[:1], ends[1:], held)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            tmp_path / f"{name}.onnx",
        )
    found = drawn(tmp_path / "right.onnx", "ort", tmp_path, tmp_path / "wrong.onnx")
    assert found.changes[0].node.op == "LSTM"


def test_a_model_whose_weights_are_inputs_is_read_of_its_file(tmp_path: Path) -> None:
    """Of IR version 3, and of an opset that is lifted: an `.ort` file has the version and no such inputs."""
    text = """<ir_version: 3, opset_import: ["" : 8]>
        g (float[1, 2, 4, 4] x, float[2, 2, 1, 1] w) => (float[1, 2, 4, 4] y)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}> { a = Conv (x, w)  y = Relu (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "right.onnx")
    assert drawn(tmp_path / "right.onnx", "ort", tmp_path).changes == ()


def test_a_fault_stands_before_another_form_that_it_reaches(tmp_path: Path) -> None:
    """Behind a wrong weight the other form of a mean cannot be told by its numbers."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x) => (float[2, 4] y)
        <float[1] n = {0.25}, int64[1] one = {1}, float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, LAST}> {
        a = MatMul (x, w)  s = ReduceSum (a, one)  m = Mul (s, n)  y = Sub (a, m)
    }"""
    for name, last in (("right", "7"), ("wrong", "9")):
        onnx.save(onnx.parser.parse_model(text.replace("LAST", last)), tmp_path / f"{name}.onnx")
    found = drawn(tmp_path / "right.onnx", "coreml", tmp_path, tmp_path / "wrong.onnx")
    assert found.changes[0].node.value == "a"


def drawn(right: Path, target: str, folder: Path, wrong: Path | None = None) -> Comparison:
    """Compare a right model with a form of a wrong one, or of its own, on inputs that are drawn."""
    form = folder / ("right.mlpackage" if target == "coreml" else f"right.{target}")
    onnxport.convert_model(wrong or right, target, form, validate=False)
    spec = Model.load(right).inputs[0]
    draw = np.random.default_rng(0)
    sets = [{spec.name: draw.standard_normal([int(each) for each in spec.shape]).astype(np.float32)}]
    return compare_forms(Model.load(right), Artifact.open(form), sets)
