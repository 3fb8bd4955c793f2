"""Operators that are compared as others compute the same as before; files that hold them are proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.tflite.artefact import prove_tflite

Array = np.ndarray[Any, np.dtype[Any]]
STEPS, BATCH, FEATURES, HIDDEN = 5, 2, 3, 4


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def build(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], constants: Mapping[str, Array]
) -> Model:
    outputs = [name for node in nodes for name in node.output if name.startswith("y")]
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(each, name) for name, each in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def recurrence(
    op: str, direction: str, *, states: bool, bias: bool = True, steps: int = STEPS, **attributes: int
) -> Model:
    gates, count = (4 if op == "LSTM" else 3), 2 if direction == "bidirectional" else 1
    constants = {
        "w": draw(count, gates * HIDDEN, FEATURES, seed=1),
        "r": draw(count, gates * HIDDEN, HIDDEN, seed=2),
    }
    constants |= {"b": draw(count, 2 * gates * HIDDEN, seed=3)} if bias else {}
    given = ["h", "c"][: 2 if op == "LSTM" else 1] if states else []
    inputs = {"x": draw(steps, BATCH, FEATURES)}
    inputs |= {name: draw(count, BATCH, HIDDEN, seed=4 + ord(name)) for name in given}
    operands = ["x", "w", "r", "b" if bias else "", "", *given]
    outputs = ["y", "y.h", "y.c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, operands, outputs, hidden_size=HIDDEN, direction=direction, **attributes)
    return build([node], inputs, constants)


def einsum(equation: str, *shapes: tuple[int, ...]) -> Model:
    inputs = {f"x{place}": draw(*shape, seed=place) for place, shape in enumerate(shapes)}
    return build([helper.make_node("Einsum", [*inputs], ["y"], equation=equation)], inputs, {})


def blocks() -> Model:
    node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")
    return build([node], {"x": draw(1, 12, 3, 5)}, {})


def instance_norm(*shape: int, epsilon: float = 1e-3) -> Model:
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=epsilon)
    constants = {"s": draw(shape[1], seed=1), "b": draw(shape[1], seed=2)}
    return build([node], {"x": draw(*shape)}, constants)


def group_norm(groups: int, *shape: int, epsilon: float = 1e-3) -> Model:
    """Behind a convolution, as exporters write it: its input is [N, groups, rest]."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "grouped"], ["g"]),
        helper.make_node("InstanceNormalization", ["g", "s", "b"], ["n"], epsilon=epsilon),
        helper.make_node("Reshape", ["n", "whole"], ["r"]),
        helper.make_node("Mul", ["r", "scale"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["y"]),
    ]
    channels, space = shape[1], (1,) * (len(shape) - 2)
    constants = {
        "w": draw(channels, channels, *space, seed=3),
        "grouped": np.array([shape[0], groups, -1]),
        "whole": np.array(shape),
        "s": draw(groups, seed=1),
        "b": draw(groups, seed=2),
        "scale": draw(channels, *space, seed=4),
        "bias": draw(channels, *space, seed=5),
    }
    return build(nodes, {"x": draw(*shape)}, constants)


def attention() -> Model:
    """Both products of an attention with channels before positions, as U-Nets write it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["qkv"]),
        helper.make_node("Split", ["qkv"], ["q", "k", "v"], axis=1),
        helper.make_node("Einsum", ["q", "k"], ["s"], equation="bct,bcs->bts"),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("Einsum", ["p", "v"], ["y"], equation="bts,bcs->bct"),
    ]
    return build(nodes, {"x": draw(2, 4, 9)}, {"w": draw(12, 4, 1, seed=1)})


CASES: dict[str, tuple[Model, str]] = {
    **{
        f"LSTM {direction}{' with states' if states else ''}": (
            recurrence("LSTM", direction, states=states, bias=states),
            "LSTM",
        )
        for direction in ("forward", "reverse", "bidirectional")
        for states in (False, True)
    },
    **{
        f"GRU {direction} {linear} {states} {bias}": (
            recurrence("GRU", direction, states=states, bias=bias, linear_before_reset=linear),
            "GRU",
        )
        for direction in ("reverse", "bidirectional")
        for linear in (0, 1)
        for states in (False, True)
        for bias in (False, True)
    },
    "Einsum of a product": (einsum("abc,cde->abde", (2, 3, 4), (4, 5, 6)), "Einsum"),
    "Einsum of a batch": (einsum("aecd,abcd->acbe", (2, 3, 4, 5), (2, 6, 4, 5)), "Einsum"),
    "Einsum of an outer product": (einsum("a,b->ba", (2,), (3,)), "Einsum"),
    "DepthToSpace": (blocks(), "CRD"),
    "Einsum of a turned product": (einsum("bts,bcs->bct", (2, 4, 5), (2, 3, 5)), "Einsum"),
    **{
        f"InstanceNormalization of {len(shape) - 2} axes": (instance_norm(*shape), "InstanceNormalization")
        for shape in ((2, 3, 7), (2, 3, 5, 6), (1, 2, 3, 4, 5))
    },
    **{
        f"InstanceNormalization of {groups} groups": (group_norm(groups, 2, 6, 4, 5), "InstanceNormalization")
        for groups in (1, 3, 6)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_rewritten_computes_the_same(name: str) -> None:
    model, gone = CASES[name]
    feeds = {
        spec.name: draw(*(int(each) for each in spec.shape), seed=place)
        for place, spec in enumerate(model.inputs)
    }
    rewritten = Graph(model, {key: array.shape for key, array in feeds.items()}).model
    kinds = {node.op_type for node in rewritten.graph}
    modes = {node.attributes.get_string("mode", "") for node in rewritten.graph}
    assert gone not in kinds | modes
    with OrtRuntime.of_model(model) as before, OrtRuntime.of_model(rewritten) as after:
        wanted, given = before.run(feeds), after.run(feeds)
    for key, array in wanted.items():
        np.testing.assert_allclose(given[key], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stacks", [(2,), (2, 5)])
@pytest.mark.parametrize(
    "flags", ["", "transA", "transB", "transBatchA", "transBatchB transB", "transBatchA transA"]
)
def test_a_fused_product_is_one_behind_transposes(flags: str, stacks: tuple[int, ...]) -> None:
    shapes = {"a": [*stacks, 3, 4], "b": [*stacks, 4, 6]}
    for name in "ab":
        if f"trans{name.upper()}" in flags.split():
            shapes[name][-2:] = shapes[name][:-3:-1]
        if f"transBatch{name.upper()}" in flags:  # the axis before the last comes first
            *outer, rows, last = shapes[name]
            shapes[name] = [rows, *outer, last]
    node = helper.make_node(
        "FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5, **dict.fromkeys(flags.split(), 1)
    )
    feeds = {name: draw(*shape, seed=len(shape)) for name, shape in shapes.items()}
    model = build([node], feeds, {})
    rewritten = Graph(model, shapes).model
    assert "FusedMatMul" not in {each.op_type for each in rewritten.graph}
    with OrtRuntime.of_model(model) as before, OrtRuntime.of_model(rewritten) as after:
        np.testing.assert_allclose(after.run(feeds)["y"], before.run(feeds)["y"], rtol=1e-5, atol=1e-6)


def test_the_results_of_a_single_step_are_not_joined() -> None:
    """A converter has nothing to join either: both sides are the same nodes."""
    model = recurrence("GRU", "forward", states=True, steps=1)
    rewritten = Graph(model, {"x": (1, BATCH, FEATURES), "h": (1, BATCH, HIDDEN)}).model
    assert "Concat" not in {node.op_type for node in rewritten.graph}


@pytest.mark.parametrize(
    ("op", "attributes"), [("LSTM", {"clip": 3.0}), ("LSTM", {"activations": ["Relu", "Tanh", "Tanh"]})]
)
def test_a_layer_with_other_settings_stays(op: str, attributes: dict[str, Any]) -> None:
    model = recurrence(op, "forward", states=False, **attributes)
    rewritten = Graph(model, {"x": (STEPS, BATCH, FEATURES)}).model
    assert op in {node.op_type for node in rewritten.graph}


# ---- files


def _tflite(model: Model, folder: Path) -> tuple[Path, Path]:
    source, made = folder / "m.onnx", folder / "m.tflite"
    onnx.save(ir.to_proto(model.ir), source)
    onnxport.convert_model(source, "tflite", made, validate=False, precision="fp16")
    return source, made


def one_hot() -> Model:
    nodes = [
        helper.make_node("OneHot", ["i", "depth", "values"], ["o"], axis=-1),
        helper.make_node("Mul", ["o", "w"], ["y"]),
    ]
    constants = {"depth": np.array(300), "values": np.array([0, 1], np.float32), "w": draw(2, 5, 300)}
    return build(nodes, {"i": np.zeros((2, 5), np.int64)}, constants)


def response_norm() -> Model:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("LRN", ["c"], ["y"], size=5, alpha=1e-4, beta=0.75, bias=2.0),
    ]
    return build(nodes, {"x": draw(1, 3, 12, 12)}, {"w": draw(64, 3, 5, 5)})


FILES = {
    "LSTM": (recurrence("LSTM", "bidirectional", states=True), {}),
    "GRU": (recurrence("GRU", "bidirectional", states=False, linear_before_reset=1), {}),
    "OneHot": (one_hot(), {"i": np.array([[1, 2, 299, 0, -1]] * 2)}),
    "LRN": (response_norm(), {}),
    "DepthToSpace": (blocks(), {}),
    "InstanceNormalization": (instance_norm(1, 6, 8, 8), {}),
    **{
        f"InstanceNormalization of {groups} groups": (group_norm(groups, 1, 64, 8, 8), {})
        for groups in (8, 64)
    },
    "attention": (attention(), {}),
    "Einsum": (
        build(
            [helper.make_node("Einsum", ["x", "w"], ["y"], equation="abc,cde->abde")],
            {"x": draw(2, 3, 64)},
            {"w": draw(64, 8, 16)},
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_tflite_file_of_such_operators_is_proven(name: str, tmp_path: Path) -> None:
    model, given = FILES[name]
    source, made = _tflite(model, tmp_path)
    feeds = {spec.name: draw(*(int(each) for each in spec.shape)) for spec in model.inputs} | given
    found = prove_tflite(Model.load(source), made, [feeds], rounding="float16")
    assert list(found.findings) == []
    assert not found.matches < 1


def test_another_lstm_is_no_match(tmp_path: Path) -> None:
    """The gates o and f of one direction in each other's place."""
    model, _ = FILES["LSTM"]
    _, made = _tflite(model, tmp_path)
    weights = model.graph.initializers["w"].const_value
    assert weights is not None
    swapped = weights.numpy().copy()
    swapped[1] = swapped[1].reshape(4, HIDDEN, FEATURES)[[0, 2, 1, 3]].reshape(-1, FEATURES)
    other = model.clone()
    other.graph.initializers["w"].const_value = ir.Tensor(swapped)
    feeds = {spec.name: draw(*(int(each) for each in spec.shape)) for spec in model.inputs}
    assert prove_tflite(other, made, [feeds], rounding="float16").faults


@pytest.mark.parametrize(
    "other",
    [group_norm(4, 1, 64, 8, 8), group_norm(8, 1, 64, 8, 8, epsilon=2e-3)],
    ids=["other groups", "another epsilon"],
)
def test_another_group_norm_is_no_match(other: Model, tmp_path: Path) -> None:
    _, made = _tflite(group_norm(8, 1, 64, 8, 8), tmp_path)
    found = prove_tflite(other, made, [{"x": draw(1, 64, 8, 8)}], rounding="float16")
    assert list(found.findings)


@pytest.mark.parametrize("name", ["LSTM", "InstanceNormalization"])
def test_a_core_ml_package_of_such_operators_is_proven(name: str, tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage

    model, _ = FILES[name]
    source, made = tmp_path / "m.onnx", tmp_path / "m.mlpackage"
    onnx.save(ir.to_proto(model.ir), source)
    onnxport.convert_model(source, "coreml", made, validate=False, precision="fp16")
    feeds = {spec.name: draw(*(int(each) for each in spec.shape)) for spec in model.inputs}
    found = prove_mlpackage(Model.load(source), made, [feeds], rounding="float16")
    assert list(found.findings) == []
