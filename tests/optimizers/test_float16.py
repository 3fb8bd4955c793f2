"""A float16 model agrees with the source in ONNX's reference, which rounds after every node, and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fixtures import graphs
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers.float16.conversion import Float16Model, canonicalize, convert, to_float16
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.optimizers.float16.preflight import Preflight

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT, HALF, DOUBLE, BOOL, INT64 = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.BOOL,
    TensorProto.INT64,
)
X = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, int],
    *,
    rank: int = 2,
    **constants: Array,
) -> onnx.ModelProto:
    """A checked model; `inputs` are element type and shape, `outputs` element types, all of one rank."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, [None] * rank) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def half(proto: onnx.ModelProto, folder: Path, *feeds: Mapping[str, Array], io: bool = False) -> Float16Model:
    """Return the model in float16, measured in this process on `feeds`, or not measured without."""
    own = onnx.load_from_string(proto.SerializeToString())  # onnx-ir names the tensors of what it is given
    model = canonicalize(Model(ir.from_proto(own), Path("model.onnx")))
    measured = Measured()
    if feeds:
        model.hand_over(folder / "handed_over.onnx")
        measured = Preflight().measure(folder / "handed_over.onnx", {}, feeds)
        assert not measured.failure
    return convert(model, measured, io=io)


def proto_of(model: Model) -> onnx.ModelProto:
    data = model.to_bytes()
    assert data is not None
    made = onnx.load_from_string(data)
    onnx.checker.check_model(made, full_check=True)
    return made


def run(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return ONNX Runtime's answers."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def rounded(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the answers of ONNX's reference, whose arithmetic is float16 where the types are."""
    return [np.asarray(value) for value in ReferenceEvaluator(proto).run(None, dict(feeds))]


def assert_close(
    source: onnx.ModelProto, made: Float16Model, feeds: Mapping[str, Array], rtol: float = 4e-3
) -> onnx.ModelProto:
    """Check both runtimes against the source, within a few roundings; return the model."""
    proto = proto_of(made.model)
    for answers in (run(proto, feeds), rounded(proto, feeds)):
        for expected, found in zip(run(source, feeds), answers, strict=True):
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, atol=rtol * np.abs(expected).max(initial=0))
    return proto


def types(proto: onnx.ModelProto) -> dict[str, int]:
    return {each.name: each.type.tensor_type.elem_type for each in proto.graph.value_info}


def stored(proto: onnx.ModelProto) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in proto.graph.initializer}


@pytest.mark.parametrize("make", [graphs.conv_relu, graphs.mlp, graphs.dynamic_two_dims])
def test_weights_and_values_become_float16_and_the_border_stays(make: Any, tmp_path: Path) -> None:
    source = make()
    (given,) = source.graph.input
    shape = [dim.dim_value or 2 for dim in given.type.tensor_type.shape.dim]
    feeds = {given.name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    made = half(source, tmp_path, feeds)
    proto = assert_close(source, made, feeds)
    assert set(stored(proto).values()) == {HALF}
    computed = {name for node in proto.graph.node if node.op_type != "Cast" for name in node.output}
    assert {types(proto)[name] for name in computed} == {HALF}
    assert made.facts["casts"] == 2
    assert made.facts["weights"]["after"] * 2 == made.facts["weights"]["before"]


def test_inputs_and_outputs_become_float16_on_request(tmp_path: Path) -> None:
    made = half(graphs.mlp(), tmp_path, {"x": X}, io=True)
    proto = proto_of(made.model)
    ports = [*proto.graph.input, *proto.graph.output]
    assert [each.type.tensor_type.elem_type for each in ports] == [HALF, HALF]
    assert [each.name for each in ports] == ["x", "probabilities"]
    assert "Cast" not in {node.op_type for node in proto.graph.node}
    np.testing.assert_allclose(
        run(proto, {"x": X.astype(np.float16)})[0], run(graphs.mlp(), {"x": X})[0], atol=4e-3
    )


OVERFLOWING = graph_of(
    [
        helper.make_node("MatMul", ["x", "w"], ["small"]),
        helper.make_node("Mul", ["small", "many"], ["large"]),
        helper.make_node("Reshape", ["large", "shape"], ["moved"]),
        helper.make_node("Div", ["moved", "many"], ["again"]),
        helper.make_node("Relu", ["again"], ["y"]),
    ],
    {"x": (FLOAT, ["n", 6])},
    {"y": FLOAT},
    w=np.eye(6, dtype=np.float32),
    many=np.array(3e5, np.float32),
    shape=np.array([-1, 3], np.int64),
)


def test_values_that_overflow_on_the_samples_stay_float32(tmp_path: Path) -> None:
    """Without samples the same model returns infinity in float16 arithmetic: the test can fail."""
    made = half(OVERFLOWING, tmp_path, {"x": X})
    proto = assert_close(OVERFLOWING, made, {"x": X})
    assert {types(proto)[name] for name in ("large", "moved")} == {FLOAT}
    assert types(proto)["small"] == HALF
    assert stored(proto) == {"w": HALF, "many": FLOAT, "shape": INT64}
    assert made.facts["float32 nodes"] == {
        "values go beyond float16": 3,
        "stands between others of these": 1,
    }
    assert made.facts["casts"] == 2
    assert "values go beyond float16 (Mul 'large', Reshape 'moved', Div 'again')" in made.notes[0]
    unmeasured = proto_of(half(OVERFLOWING, tmp_path).model)
    assert not np.isfinite(rounded(unmeasured, {"x": X})[0]).all()


def test_a_light_node_between_islands_joins_them(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["sums"]),
        helper.make_node("Neg", ["sums"], ["turned"]),
        helper.make_node("CumSum", ["turned", "axis"], ["twice"]),
        helper.make_node("MatMul", ["twice", "w"], ["y"]),
    ]
    source = graph_of(
        nodes, {"x": (FLOAT, [4, 6])}, {"y": FLOAT}, axis=np.array(1), w=np.eye(6, dtype=np.float32)
    )
    made = half(source, tmp_path, {"x": X})
    proto = assert_close(source, made, {"x": X})
    assert types(proto)["turned"] == FLOAT
    assert made.facts["casts"] == 2  # before and behind the MatMul


def test_a_mask_beyond_float16_is_clamped_with_a_note(tmp_path: Path) -> None:
    """Only Where's constant is beyond float16, which is no overflow: Softmax makes it 0 either way."""
    nodes = [
        helper.make_node("Where", ["keep", "x", "lowest"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    inputs = {"x": (FLOAT, [4, 6]), "keep": (BOOL, [4, 6])}
    lowest = np.array(np.finfo(np.float32).min)
    source = graph_of(nodes, inputs, {"y": FLOAT}, lowest=lowest)
    feeds = {"x": X, "keep": X > 0}
    made = half(source, tmp_path)
    proto = assert_close(source, made, feeds)
    assert numpy_helper.to_array(proto.graph.initializer[0]) == -65504
    assert made.notes[-1] == "constants beyond float16 became its largest number, 65504: 'lowest' (-3.4e+38)"
    assert_close(source, half(source, tmp_path, feeds), feeds)


def test_resize_keeps_its_scales_in_float32(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "roi", "scales"], ["y"], mode="linear")
    source = graph_of(
        [node],
        {"x": (FLOAT, [1, 2, 4, 4])},
        {"y": FLOAT},
        rank=4,
        roi=np.zeros(8, np.float32),
        scales=np.array([1, 1, 2, 2], np.float32),
    )
    feeds = {"x": X[:4].reshape(-1)[: 32 // 2].repeat(2).reshape(1, 2, 4, 4)}
    proto = assert_close(source, half(source, tmp_path, feeds), feeds)
    assert stored(proto) == {"roi": FLOAT, "scales": FLOAT}


def branching(scale: float) -> onnx.ModelProto:
    """If over values of the graph around it; one branch goes to `scale` times them and back."""
    then = helper.make_graph(
        [
            helper.make_node("Mul", ["outer", "many"], ["large"]),
            helper.make_node("Div", ["large", "many"], ["then_y"]),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("then_y", FLOAT, [4, 6])],
        [numpy_helper.from_array(np.array(scale, np.float32), "many")],
    )
    other = helper.make_graph(
        [helper.make_node("MatMul", ["outer", "w"], ["else_y"])],
        "else",
        [],
        [helper.make_tensor_value_info("else_y", FLOAT, [4, 6])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["outer"]),
        helper.make_node("If", ["which"], ["chosen"], then_branch=then, else_branch=other),
        helper.make_node("Neg", ["chosen"], ["y"]),
    ]
    inputs: dict[str, tuple[int, Sequence[int]]] = {"x": (FLOAT, [4, 6]), "which": (BOOL, [])}
    return graph_of(nodes, inputs, {"y": FLOAT}, w=np.eye(6, dtype=np.float32))


@pytest.mark.parametrize("scale", [2, 1e6])
def test_branches_that_read_the_graph_around_them(scale: float, tmp_path: Path) -> None:
    source = branching(scale)
    sets = [{"x": X, "which": np.array(which)} for which in (True, False)]
    made = half(source, tmp_path, *sets)
    for feeds in sets:
        proto = assert_close(source, made, feeds)
    assert made.facts["float32 nodes"] == ({} if scale == 2 else {"values go beyond float16": 2})
    assert types(proto)["chosen"] == HALF


@pytest.mark.parametrize("grows", [1, 100])
def test_a_loop_that_carries_floats(grows: float, tmp_path: Path) -> None:
    """Initial, carried and final state are float16, or float32 where the values exceed it."""
    named = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Mul", ["state", "factor"], ["next"]),
            helper.make_node("ReduceMax", ["next"], ["seen"]),
        ],
        "body",
        [named("step", INT64, []), named("going", BOOL, []), named("state", FLOAT, [4, 6])],
        [named("goes_on", BOOL, []), named("next", FLOAT, [4, 6]), named("seen", FLOAT, [1, 1])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["start"]),
        helper.make_node("Loop", ["steps", "first", "start"], ["end", "maxima"], body=body),
        helper.make_node("Div", ["end", "back"], ["y"]),
        helper.make_node("Reshape", ["maxima", "row"], ["seen_in_all"]),
    ]
    source = graph_of(
        nodes,
        {"x": (FLOAT, [4, 6])},
        {"y": FLOAT, "seen_in_all": FLOAT},
        row=np.array([1, -1]),
        w=np.eye(6, dtype=np.float32),
        steps=np.array(3),
        first=np.array(True),
        factor=np.array(grows, np.float32),
        back=np.array(grows**3, np.float32),
    )
    made = half(source, tmp_path, {"x": X})
    proto = assert_close(source, made, {"x": X})
    assert types(proto)["end"] == (HALF if grows == 1 else FLOAT)


def test_a_scan_over_floats(tmp_path: Path) -> None:
    named = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["so_far", "row"], ["more"]), helper.make_node("Tanh", ["more"], ["bent"])],
        "body",
        [named("so_far", FLOAT, [6]), named("row", FLOAT, [6])],
        [named("more", FLOAT, [6]), named("bent", FLOAT, [6])],
    )
    nodes = [
        helper.make_node("Scan", ["zero", "x"], ["total", "y"], body=body, num_scan_inputs=1),
        helper.make_node("Unsqueeze", ["total", "axis"], ["sum"]),
    ]
    source = graph_of(
        nodes,
        {"x": (FLOAT, [4, 6])},
        {"sum": FLOAT, "y": FLOAT},
        zero=np.zeros(6, np.float32),
        axis=np.array([0]),
    )
    made = half(source, tmp_path, {"x": X})
    assert_close(source, made, {"x": X})
    assert made.facts["float16 nodes"] == 4


def test_functions_are_inlined(tmp_path: Path) -> None:
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [4, 6])],
        [helper.make_tensor_value_info("y", FLOAT, [4, 6])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    source = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    made = half(source, tmp_path, {"x": X})
    assert_close(source, made, {"x": X})
    assert made.facts["float16 nodes"] == 1


@pytest.mark.parametrize(("size", "expected"), [(6, {"w": FLOAT, "w/half": HALF}), (3000, {"w": HALF})])
def test_a_constant_that_both_precisions_read(size: int, expected: dict[str, int], tmp_path: Path) -> None:
    """A small one is stored twice, a large one once: the island reads the float16 values."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["moved"]),
        helper.make_node("CumSum", ["w", "axis"], ["sums"]),
        helper.make_node("Mul", ["moved", "sums"], ["y"]),
    ]
    w = np.linspace(-0.1, 0.1, size, dtype=np.float32)
    source = graph_of(nodes, {"x": (FLOAT, [size])}, {"y": FLOAT}, rank=1, w=w, axis=np.array(0))
    feeds = {"x": np.linspace(-1, 1, size, dtype=np.float32)}
    proto = assert_close(source, half(source, tmp_path, feeds), feeds, rtol=1e-2)
    assert {name: dtype for name, dtype in stored(proto).items() if name != "axis"} == expected


def test_a_batch_normalization_of_tiny_variances(tmp_path: Path) -> None:
    """Rounded directly, these would be zeros, and the answer noise."""
    random = np.random.default_rng(3)
    operands = {
        "scale": random.uniform(1, 2, 4) * 1e-4,
        "bias": random.standard_normal(4),
        "mean": random.standard_normal(4) * 1e-4,
        "variance": random.uniform(1, 2, 4) * 1e-8,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", *operands], ["normal"], epsilon=1e-12),
        helper.make_node("Relu", ["normal"], ["active"]),
        helper.make_node("BatchNormalization", ["active", *operands], ["y"], epsilon=1e-12),
    ]
    source = graph_of(
        nodes,
        {"x": (FLOAT, [2, 3, 4, 4])},
        {"y": FLOAT},
        rank=4,
        w=random.standard_normal((4, 3, 1, 1)).astype(np.float32) * 1e-4,
        **{name: each.astype(np.float32) for name, each in operands.items()},
    )
    feeds = {"x": random.standard_normal((2, 3, 4, 4)).astype(np.float32)}
    made = half(source, tmp_path, feeds)
    proto = assert_close(source, made, feeds)
    assert [node.op_type for node in proto.graph.node].count("BatchNormalization") == 1
    assert "w" not in stored(proto), "what nobody reads any more is not in the file"


def test_positions_stay_whole_numbers(tmp_path: Path) -> None:
    """float16 has no 2049: a path from integers to integers is float32 throughout."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["numbers"], to=FLOAT),
        helper.make_node("Add", ["numbers", "one"], ["next"]),
        helper.make_node("Cast", ["next"], ["whole"], to=INT64),
        helper.make_node("Reshape", ["whole", "row"], ["y"]),
        helper.make_node("MatMul", ["x", "w"], ["z"]),
    ]
    inputs = {"ids": (INT64, ["n"]), "x": (FLOAT, [4, 6])}
    source = graph_of(
        nodes,
        inputs,
        {"y": INT64, "z": FLOAT},
        one=np.array(1, np.float32),
        w=np.eye(6, dtype=np.float32),
        row=np.array([1, -1]),
    )
    feeds = {"ids": np.arange(2046, 2060), "x": X}
    made = half(source, tmp_path, feeds)
    proto = proto_of(made.model)
    np.testing.assert_array_equal(rounded(proto, feeds)[0][0], np.arange(2047, 2061))
    assert types(proto)["next"] == FLOAT


def test_float64_is_left_alone(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=DOUBLE),
        helper.make_node("Exp", ["wide"], ["large"]),
        helper.make_node("Log", ["large"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    source = graph_of(nodes, {"x": (FLOAT, [4, 6])}, {"y": DOUBLE, "z": FLOAT})
    proto = assert_close(source, half(source, tmp_path, {"x": X}), {"x": X})
    assert types(proto)["large"] == DOUBLE


def test_declared_types_and_shapes_that_are_stale_do_no_harm(tmp_path: Path) -> None:
    source = graphs.mlp()
    source.graph.value_info.append(helper.make_tensor_value_info("hidden", FLOAT, [1, 8]))
    assert_close(source, half(source, tmp_path, {"x": X}), {"x": X})


def test_sequences_stay_float32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a", "x"], ["both"]),
        helper.make_node("SequenceAt", ["both", "first"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    source = graph_of(
        nodes, {"x": (FLOAT, [4, 6])}, {"y": FLOAT}, first=np.array(0), w=np.eye(6, dtype=np.float32)
    )
    made = half(source, tmp_path, {"x": X})
    proto = assert_close(source, made, {"x": X})
    assert stored(proto)["w"] == HALF


def test_a_float16_model_is_refused_as_such(tmp_path: Path) -> None:
    done = proto_of(half(graphs.mlp(), tmp_path, io=True).model)
    with pytest.raises(
        CannotConvertError, match="values to convert to float16: its floats are float16; use it"
    ):
        half(done, tmp_path)


def test_a_model_of_operators_that_take_no_float16_is_refused_with_the_reason(tmp_path: Path) -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.0] * 6, scale=[1.0] * 6)
    source = graph_of([], {"x": (FLOAT, [4, 6])}, {"x": FLOAT})
    source.graph.node.append(node)
    source.graph.output[0].name = "y"
    source.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with pytest.raises(CannotConvertError, match="can be float16: Scaler takes no float16"):
        half(source, tmp_path)


def test_a_pattern_that_crashes_onnx_runtime_is_avoided(tmp_path: Path) -> None:
    """Transpose of the batch before a MatMul with a constant crashes ONNX Runtime 1.31.1 in float16."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["turned", "w"], ["y"]),
    ]
    source = graph_of(
        nodes, {"x": (FLOAT, [2, 3, 6])}, {"y": FLOAT}, rank=3, w=np.eye(6, 4, dtype=np.float32)
    )
    feeds = {"x": np.ones((2, 3, 6), np.float32)}
    assert_close(source, half(source, tmp_path, feeds), feeds)


def test_the_source_stays_as_it_is_and_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    source = Model(ir.from_proto(branching(2)), Path("model.onnx"))
    before = source.to_bytes()
    made = [to_float16(source, tmp_path).model.to_bytes() for _ in range(2)]
    assert source.to_bytes() == before
    assert made[0] == made[1]


@pytest.mark.parametrize("steps", [0, 3])
def test_values_in_branches_and_bodies_are_measured(steps: int, tmp_path: Path) -> None:
    named = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["state", "one"], ["next"]),
        ],
        "body",
        [named("step", INT64, []), named("going", BOOL, []), named("state", FLOAT, [1])],
        [named("goes_on", BOOL, []), named("next", FLOAT, [1])],
        [numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    node = helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)
    source = graph_of([node], {"x": (FLOAT, [1]), "steps": (INT64, [])}, {"y": FLOAT}, rank=1)
    onnx.save(source, tmp_path / "loop.onnx")
    feeds = {"x": np.full(1, 5, np.float32), "steps": np.array(steps)}
    measured = Preflight().measure(tmp_path / "loop.onnx", {}, [feeds])
    assert not measured.failure
    assert measured.peaks["next"] == (5 + steps if steps else 0)
    assert measured.peaks["y"] == 5 + steps
