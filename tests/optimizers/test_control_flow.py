"""Rewritings in and around branches and loops keep the answers."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.canonical_form import prepare

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'

SCAN = """g (float[2,5,3] x, float[2,3] h) => (float[2,3] y, float[2,5,3] z, float[5,2,3] w) {
    y, z, w = Scan <
        num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1,0],
        scan_output_directions=[1,0],
        body = l (float[2,3] s, float[2,3] xs) => (float[2,3] s2, float[2,3] z1, float[2,3] w1) {
            t = Add(s, xs)
            s2 = Tanh(t)
            z1 = Neg(s2)
            w1 = Identity(s2)
        }
    > (h, x)
}"""

SQUEEZED = """g (float[N,4,T] x, float[1,8,4] w, float[1,8,2] r) => (float[N,1,B,2] y)
    <int64[1] two = {2}, int64[1] one = {1}> {
    size = Shape<start=2>(x)
    is_one = Equal(size, one)
    cut = If (is_one) <
        then_branch = a () => (c) { c = Squeeze(x, two) },
        else_branch = b () => (d) { d = Identity(x) }
    >
    rows = Unsqueeze(cut, one)
    y, h, c2 = LSTM<hidden_size=2>(rows, w, r)
}"""

GROWING = """g (int64 n, float[K,3] x) => (y, z) {
    y, z = Loop (n, , x, x) <
        body = l (int64 i, bool c, s, f) => (bool c2, s2, f2) {
            c2 = Identity(c)
            s2 = Concat<axis=0>(s, f)
            f2 = Neg(f)
        }
    >
}"""


def model_from(graph: str) -> Model:
    return Model(ir.from_proto(onnx.parser.parse_model(HEADER + graph)))


def test_a_scan_as_a_loop_gives_the_same_answers() -> None:
    model = model_from(SCAN)
    prepared = prepare(model, shapes={}, native=lambda: ["Loop"]).model
    assert "Loop" in {node.op_type for node in prepared.graph}
    random = np.random.default_rng(0)
    feeds = {
        "x": random.standard_normal((2, 5, 3), np.float32),
        "h": random.standard_normal((2, 3), np.float32),
    }
    before, after = (
        onnxruntime.InferenceSession(each.to_bytes()).run(["y", "z", "w"], feeds)
        for each in (model, prepared)
    )
    for expected, answer in zip(before, after, strict=True):
        assert np.array_equal(expected, answer)


def test_a_branch_that_cannot_run_is_dropped() -> None:
    """An LSTM needs three dimensions, which it gets only where the axis was squeezed."""
    prepared = prepare(model_from(SQUEEZED), shapes={}, native=lambda: ["LSTM"]).model
    assert "If" not in {node.op_type for node in prepared.graph}
    assert "Squeeze" in {node.op_type for node in prepared.graph}


def test_a_branch_that_can_run_stays() -> None:
    text = SQUEEZED.replace("rows = Unsqueeze(cut, one)", "rows = Relu(cut)")
    text = text.replace("y, h, c2 = LSTM<hidden_size=2>(rows, w, r)", "y = Neg(rows)")
    prepared = prepare(model_from(text), shapes={}, native=lambda: ["If"]).model
    assert "If" in {node.op_type for node in prepared.graph}


def test_only_dimensions_that_a_loop_changes_are_open() -> None:
    model = model_from(GROWING)
    shape_inference.infer(model)
    (loop,) = model.graph
    grows, stays = loop.attributes["body"].as_graph().inputs[2:]
    assert grows.shape is not None
    assert grows.shape[1] == 3
    assert str(grows.shape[0]) != "K"
    assert [str(dim) for dim in stays.shape or ()] == ["K", "3"]
    assert [str(dim) for dim in loop.outputs[1].shape or ()] == ["K", "3"]
