"""Preparation changes a model's form and never its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.formats.model import Model
from onnxport.optimizers import canonical_form, constant_folding
from onnxport.optimizers.passes import Pass, Rewritten

Array = np.ndarray[Any, np.dtype[Any]]


def load(proto: onnx.ModelProto, tmp_path: Path) -> Model:
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return Model.load(path)


def prepared(model: Model, native: frozenset[str] | None = None, **options: Any) -> Rewritten:
    """Prepare a model; by default every operator in the graph is native."""
    ops = frozenset(node.op_type for node in model.graph) if native is None else native
    return canonical_form.prepare(model, shapes=options.pop("shapes", {}), native=lambda: ops, **options)


def answers(model: Model | Path, feeds: dict[str, Array]) -> list[Array]:
    source = model.to_bytes() if isinstance(model, Model) else model
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def graph(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], outputs: dict[str, int], **weights: Array
) -> Any:
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * rank)
                for n, rank in outputs.items()
            ],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )


def test_the_input_model_is_not_changed(tmp_path: Path) -> None:
    model = load(graphs.conv_relu(), tmp_path)
    before = model.to_bytes()
    prepared(model, shapes={"x": (2, None, None, None)})
    assert model.to_bytes() == before


def test_a_stale_static_batch_inside_the_file_is_dropped(tmp_path: Path) -> None:
    proto = graphs.mlp()
    proto.graph.value_info.append(helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, 8]))
    result = prepared(load(proto, tmp_path)).model
    shapes = {value.name: value.shape for node in result.graph for value in node.outputs}
    assert str(shapes["hidden"]) == "[N,8]"


def test_given_shapes_reach_every_value(tmp_path: Path) -> None:
    result = prepared(load(graphs.conv_relu(), tmp_path), shapes={"x": (5, 3, 8, 10)}).model
    assert result.inputs[0].shape == (5, 3, 8, 10)
    assert result.outputs[0].shape == (5, 4, 8, 10)


def test_an_impossible_shape_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        prepared(load(graphs.conv_relu(), tmp_path), shapes={"x": (5, 4, 8, 10)})


def test_constant_subgraphs_are_computed_and_answers_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    proto = graph(
        [
            helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
            helper.make_node("Exp", ["wt"], ["we"]),
            helper.make_node("MatMul", ["x", "we"], ["y"]),
        ],
        {"x": ["N", 5]},
        {"y": 2},
        w=rng.standard_normal((4, 5)).astype(np.float32),
    )
    model = load(proto, tmp_path)
    result = prepared(model).model
    assert [node.op_type for node in result.graph] == ["MatMul"]
    feeds = {"x": rng.standard_normal((3, 5)).astype(np.float32)}
    np.testing.assert_allclose(answers(result, feeds)[0], answers(model, feeds)[0], rtol=1e-6)


def test_a_dequantized_weight_keeps_its_scale(tmp_path: Path) -> None:
    proto = graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        {"x": ["N", 2]},
        {"y": 2},
        q=np.array([[1, 2], [3, 4]], np.int8),
        s=np.float32(0.5),
        z=np.int8(0),
    )
    assert "DequantizeLinear" in [node.op_type for node in prepared(load(proto, tmp_path)).model.graph]


def test_a_constant_that_would_explode_is_left_to_run_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constant_folding, "SIZE_LIMIT", 1000)
    proto = graph(
        [helper.make_node("Expand", ["c", "shape"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])],
        {"x": ["N", 1000]},
        {"y": 2},
        c=np.ones((1, 1), np.float32),
        shape=np.array([1, 1000]),
    )
    assert [node.op_type for node in prepared(load(proto, tmp_path)).model.graph] == ["Expand", "Add"]


def test_known_elements_of_an_open_shape_are_constants(tmp_path: Path) -> None:
    """The exporters' idiom: sizes read from Shape at run time although only the batch is open."""
    proto = graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Gather", ["shape", "two"], ["height"], axis=0),
            helper.make_node("Mul", ["height", "three"], ["tripled"]),
            helper.make_node("Cast", ["tripled"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["x", "f"], ["y"]),
        ],
        {"x": ["N", 3, 8, 10]},
        {"y": 4},
        two=np.array([2]),
        three=np.array([3]),
    )
    result = prepared(load(proto, tmp_path)).model
    assert [node.op_type for node in result.graph] == ["Mul"]
    x = np.ones((2, 3, 8, 10), np.float32)
    assert answers(result, {"x": x})[0].max() == 24


def test_a_reshape_by_open_shape_arithmetic_gets_its_dimensions(tmp_path: Path) -> None:
    """[N, 6, 4] -> [N, 2, -1]: the batch stays open, the rest is known."""
    proto = graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Slice", ["shape", "zero", "one"], ["batch"]),
            helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
            helper.make_node("Reshape", ["x", "target"], ["y"]),
        ],
        {"x": ["N", 6, 4]},
        {"y": 3},
        zero=np.array([0]),
        one=np.array([1]),
        rest=np.array([2, -1]),
    )
    result = prepared(load(proto, tmp_path)).model
    assert result.outputs[0].shape[1:] == (2, 12)
    assert not isinstance(result.outputs[0].shape[0], int)


def test_columns_behind_the_last_one_of_open_rows_are_not_joined(tmp_path: Path) -> None:
    """Detectors join boxes[:, :4] / size and boxes[:, 4:] where there are only four columns."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Slice", ["x", "four", "far", "one"], ["none"]),
        helper.make_node("Concat", ["a", "none"], ["y"], axis=-1),
    ]
    numbers = {name: np.array([each]) for name, each in (("four", 4), ("far", 2**63 - 1), ("one", 1))}
    model = load(graph(nodes, {"x": ["N", 4]}, {"y": 2}, **numbers), tmp_path)
    result = prepared(model).model
    assert "Slice" not in {node.op_type for node in result.graph}
    feeds = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    np.testing.assert_array_equal(answers(result, feeds)[0], answers(tmp_path / "model.onnx", feeds)[0])


def test_an_open_dimension_is_no_negative_number(tmp_path: Path) -> None:
    """PyTorch's expand asks which sizes are -1; no dimension is, so the question is answered."""
    proto = graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Equal", ["shape", "minus"], ["kept"]),
            helper.make_node("Where", ["kept", "ones", "shape"], ["target"]),
            helper.make_node("Reshape", ["x", "target"], ["z"]),
            helper.make_node("Relu", ["z"], ["y"]),
        ],
        {"x": ["N", 6, 4]},
        {"y": 3},
        minus=np.array([-1, -1, -1]),
        ones=np.array([1, 1, 1]),
    )
    result = prepared(load(proto, tmp_path)).model
    assert "Equal" not in {node.op_type for node in result.graph}
    x = np.ones((2, 6, 4), np.float32)
    assert answers(result, {"x": x})[0].shape == (2, 6, 4)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Softplus", {}),
        ("Selu", {"alpha": 1.5, "gamma": 1.1}),
        ("Celu", {"alpha": 0.7}),
        ("Mish", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("ReduceL2", {"keepdims": 0}),
        ("ReduceLogSumExp", {}),
        ("HardSwish", {}),
        ("Shrink", {"lambd": 0.4, "bias": 0.2}),
    ],
)
def test_a_composite_operator_is_replaced_by_its_definition(
    tmp_path: Path, op: str, attributes: dict[str, Any]
) -> None:
    model = load(
        graph(
            [helper.make_node(op, ["x"], ["y"], **attributes)],
            {"x": ["N", 7]},
            {"y": 1 if "keepdims" in attributes else 2},
        ),
        tmp_path,
    )
    result = prepared(model, native=frozenset()).model
    assert op not in [node.op_type for node in result.graph]
    x = np.linspace(-3, 3, 21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_allclose(
        answers(result, {"x": x})[0], answers(model, {"x": x})[0], rtol=2e-6, atol=1e-6
    )


def _relabelled(model: Model) -> None:
    """A faulty pass: it turns every Relu into a Sigmoid."""
    for node in model.graph:
        if node.op_type == "Relu":
            node.op_type = "Sigmoid"


def _differs_from(original: Model, feeds: dict[str, Array]) -> Any:
    wanted = answers(original, feeds)[0]

    def equivalence(candidate: Model) -> str | None:
        error = float(np.abs(answers(candidate, feeds)[0] - wanted).max())
        return f"off by {error}" if error > 1e-5 else None

    return equivalence


@pytest.mark.parametrize("optional", [True, False])
def test_a_pass_that_changes_answers_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optional: bool
) -> None:
    model = load(graphs.conv_relu(), tmp_path)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)}
    right = canonical_form._passes

    def with_culprit(*args: Any, **more: Any) -> list[Pass[Model]]:
        return [*right(*args, **more), Pass("relabel", _relabelled, optional=optional)]

    monkeypatch.setattr(canonical_form, "_passes", with_culprit)
    equivalence = _differs_from(model, feeds)
    if not optional:
        with pytest.raises(CannotConvertError, match="'relabel'"):
            prepared(model, equivalence=equivalence)
        return
    result = prepared(model, equivalence=equivalence)
    assert equivalence(result.model) is None
    assert len(result.notes) == 1
    assert "'relabel' was skipped" in result.notes[0]


@pytest.mark.parametrize("length", ["window", "frame_length"])
def test_stft_without_onesided_keeps_half_of_the_bins(tmp_path: Path, length: str) -> None:
    # ONNX's shape inference takes onesided for 0 where it is left out; the operator's default is 1.
    ends = ["window", ""] if length == "window" else ["", "frame"]
    nodes = [
        helper.make_node("STFT", ["x", "step", *ends], ["bins"]),
        helper.make_node("ReduceSumSquare", ["bins", "last"], ["power"], keepdims=0),
        helper.make_node("MatMul", ["power", "mel"], ["y"]),
    ]
    constants = {
        "step": np.array(4, np.int64),
        "last": np.array([-1], np.int64),
        "mel": np.random.default_rng(0).random((9, 5), np.float32),
        "window": np.hanning(16).astype(np.float32),
        "frame": np.array(16, np.int64),
    }
    model = load(graph(nodes, {"x": ["N", "L", 1]}, {"y": 3}, **constants), tmp_path)
    x = np.random.default_rng(1).standard_normal((1, 40, 1)).astype(np.float32)
    expected = answers(tmp_path / "model.onnx", {"x": x})
    native = frozenset(("STFT", "ReduceSumSquare", "MatMul"))
    result = prepared(model, native, shapes={"x": (1, 40, 1)}).model
    assert result.outputs[0].shape == (1, 7, 5)
    assert np.array_equal(answers(result, {"x": x}), expected)


@pytest.mark.parametrize(
    ("sizes", "stays"),
    [("{-1, 1, 0, 0}", False), ("{0, 4, -1, 0}", True), ("{0, 1, -1, 1}", True)],
)
def test_a_reshape_to_the_same_open_sizes_is_dropped(sizes: str, stays: bool, tmp_path: Path) -> None:
    """The TFLite compiler refuses one before a subtraction; tf2onnx writes such in each layer normalization."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,1,H,W] x) => (float[A,B,C,D] y)
        <int64[4] s = {sizes}> {{ r = Reshape(x, s) y = Relu(r) }}"""
    model = load(onnx.parser.parse_model(text), tmp_path)
    assert ("Reshape" in [node.op_type for node in prepared(model).model.graph]) == stays
