"""Written-out operators become one node, and only where they are exactly that operator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.optimizers.gelu_fusion import fuse_gelu

ROOT = 2**0.5


def model(*nodes: tuple[str, str, str], outputs: str = "y", **constants: float) -> Model:
    graph = helper.make_graph(
        [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in nodes],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 7])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 7]) for name in outputs.split()],
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Model(ir.from_proto(proto))


def ops(fused: Model) -> list[str]:
    fuse_gelu(fused)
    return [node.op_type for node in fused.graph]


TORCH = [
    ("Div", "x root", "a"),
    ("Erf", "a", "b"),
    ("Add", "b one", "c"),
    ("Mul", "x c", "d"),
    ("Mul", "d half", "y"),
]
KERAS = [
    ("Mul", "x inverse", "a"),
    ("Erf", "a", "b"),
    ("Add", "one b", "c"),
    ("Mul", "half x", "d"),
    ("Mul", "d c", "y"),
]
NUMBERS = {"root": ROOT, "inverse": 1 / ROOT, "one": 1.0, "half": 0.5}


@pytest.mark.parametrize("nodes", [TORCH, KERAS, [*TORCH[:4], ("Div", "d two", "y")]])
def test_a_written_out_gelu_is_fused_and_computes_the_same(nodes: list[tuple[str, str, str]]) -> None:
    used = {
        name: value
        for name, value in {**NUMBERS, "two": 2.0}.items()
        if any(name in i.split() for _, i, _ in nodes)
    }
    written = model(*nodes, **used)
    fused = model(*nodes, **used)
    assert ops(fused) == ["Gelu"]
    x = np.linspace(-5, 5, 21, dtype=np.float32).reshape(3, 7)
    before, after = (
        onnxruntime.InferenceSession(each.to_bytes()).run(["y"], {"x": x})[0] for each in (written, fused)
    )
    assert np.abs(before - after).max() < 1e-6


@pytest.mark.parametrize("raising", ["root", "one", "half"])
def test_a_constant_that_raises_the_rank_is_not_dropped(raising: str) -> None:
    def made() -> Model:
        values = {name: np.array(NUMBERS[name], np.float32) for name in ("root", "one", "half")}
        values[raising] = values[raising].reshape(1, 1, 1)
        graph = helper.make_graph(
            [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in TORCH],
            "graph",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1, 3])],
            [numpy_helper.from_array(value, name) for name, value in values.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return Model(ir.from_proto(proto))

    fused = made()
    fuse_gelu(fused)
    x = np.array([-1, 0.5, 2], np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.to_bytes()).run(["y"], {"x": x})[0] for each in (made(), fused)
    )
    np.testing.assert_allclose(after, before, atol=1e-6, strict=True)


@pytest.mark.parametrize(
    ("change", "constants"),
    [
        ({}, {"root": 1.5}),
        ({}, {"one": 2.0}),
        ({}, {"half": 1.0}),
        ({3: ("Mul", "a c", "d")}, {}),
        ({2: ("Sub", "b one", "c")}, {}),
    ],
)
def test_an_almost_gelu_is_left_alone(
    change: dict[int, tuple[str, str, str]], constants: dict[str, float]
) -> None:
    nodes = [change.get(i, node) for i, node in enumerate(TORCH)]
    values = {**NUMBERS, **constants}
    del values["inverse"]
    assert "Gelu" not in ops(model(*nodes, **values))


@pytest.mark.parametrize("steps", [-1, 0, 1])
@pytest.mark.parametrize("number", ["root", "half", "one"])
def test_of_float16_constants_only_the_nearest_is_a_gelus(number: str, steps: int) -> None:
    values = {name: np.array(NUMBERS[name], np.float16) for name in ("root", "one", "half")}
    bits = int(values[number].view(np.uint16)) + steps
    values[number] = np.array(bits, np.uint16).view(np.float16)
    graph = helper.make_graph(
        [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in TORCH],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, ["N", 7])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, ["N", 7])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert ("Gelu" in ops(Model(ir.from_proto(proto)))) is (steps == 0)


def test_a_part_with_other_readers_is_kept() -> None:
    values = {name: NUMBERS[name] for name in ("root", "one", "half")}
    assert "Gelu" not in ops(model(*TORCH, outputs="y c", **values))
    assert ops(model(*TORCH, outputs="y a", **values)) == ["Div", "Gelu"]
