"""If nodes with a known condition are replaced by their branch, answers unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from onnxport.formats.model import Model
from onnxport.optimizers.branches import inline_known_branches
from onnxport.optimizers.canonical_form import prepare

TEXT = """<ir_version: 10, opset_import: ["": 21]>
graph (float[N,3] x) => (float[N,3] y, float[N,3] z)
<bool flag = {%d}, bool yes = {1}> {
    t = Neg(x)
    y = If (flag) <
        then_branch = a () => (float[N,3] r) <float c = {2.0}> { s = Mul(t, c)  r = Abs(s) },
        else_branch = b () => (float[N,3] r) <float c = {3.0}> { r = Mul(t, c) }
    >
    z = If (yes) <
        then_branch = d () => (float[N,3] r) <float c = {5.0}> { s = Mul(y, c)  r = If (flag) <
            then_branch = e () => (float[N,3] q) { q = Exp(s) },
            else_branch = f () => (float[N,3] q) { q = Neg(s) }
        > },
        else_branch = g () => (float[N,3] r) { r = Identity(x) }
    >
}"""


@pytest.mark.parametrize("flag", [0, 1])
def test_known_branches_are_inlined_with_their_answers(flag: int) -> None:
    proto = onnx.parser.parse_model(TEXT % flag)
    x = np.array([[1, -2, 0.5]], np.float32)
    before = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    model = Model(ir.from_proto(proto))
    assert inline_known_branches(model) == 2
    assert inline_known_branches(model) == 1  # the inner one stands in the main graph now
    assert inline_known_branches(model) == 0
    assert "If" not in {node.op_type for node in model.graph}
    after = onnxruntime.InferenceSession(model.to_bytes()).run(["y", "z"], {"x": x})
    for expected, answer in zip(before, after, strict=True):
        assert np.array_equal(expected, answer)


def test_an_unknown_condition_is_left_alone() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    graph (bool flag, float[3] x) => (float[3] y) {
        y = If (flag) <
            then_branch = a () => (float[3] r) { r = Abs(x) },
            else_branch = b () => (float[3] r) { r = Neg(x) }
        >
    }"""
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    assert inline_known_branches(model) == 0
    assert [node.op_type for node in model.graph] == ["If"]


@pytest.mark.parametrize("size", [2, 3])
def test_a_branch_for_other_sizes_than_the_given_ones_is_left_out(size: int, tmp_path: Path) -> None:
    """Both branches squeeze an axis; at sizes where one has nothing to squeeze, its Gemm gets four dimensions."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    graph (bool flag, float[A,B,2,2] x) => (float[2,2] y)
    <int64[2] axes = {0,1}, int64[1] one = {1}, float[2,2] w = {1,2,3,4}, int64[1] zero = {0}, int64[1] far = {9}> {
        y = If (flag) <
            then_branch = a () => (float[2,2] r) { s = Slice(x, one, far, zero) t = Squeeze(s) r = Gemm(t, w) },
            else_branch = b () => (float[2,2] r) { t = Squeeze(x) r = Gemm(t, w) }
        >
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    shapes = {"x": (size - 1, 1, 2, 2)}
    native = frozenset(("If", "Slice", "Squeeze", "Gemm"))
    prepared = prepare(Model.load(tmp_path / "m.onnx"), shapes=shapes, native=lambda: native).model
    assert "If" not in {node.op_type for node in prepared.graph}
    flag, x = np.array(size == 3), np.arange(4 * (size - 1), dtype=np.float32).reshape(shapes["x"])
    expected = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(["y"], {"flag": flag, "x": x})[0]
    answer = onnxruntime.InferenceSession(prepared.to_bytes()).run(["y"], {"flag": flag, "x": x})[0]
    assert np.array_equal(expected, answer)


def test_a_branch_that_lacks_a_dimension_that_is_read_never_runs(tmp_path: Path) -> None:
    """torch guards x.squeeze(-1) by an If, and reads x.shape[1] of its result: the squeezed one has no such axis."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    graph (float[1,T] x) => (float[1,1,M] y)
    <float[4] w = {1,2,3,4}, int64[2] flat = {1,-1}, int64 last = {1}, int64[1] axes = {-1}, int64[1] one = {1}> {
        column = Unsqueeze(x, axes)
        wide = Mul(column, w)
        row = Reshape(wide, flat)
        sizes = Shape(row)
        size = Gather(sizes, last)
        flag = Equal(size, last)
        taken = If (flag) <
            then_branch = a () => (float[A] r) { r = Squeeze(row, axes) },
            else_branch = b () => (float[A,B] r) { r = Identity(row) }
        >
        shape = Shape(taken)
        length = Gather(shape, one)
        target = Concat <axis = 0> (one, one, length)
        y = Reshape(taken, target)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = Model.load(tmp_path / "m.onnx")
    native = frozenset("Unsqueeze Mul Reshape Shape Gather Equal If Squeeze Concat Identity".split())
    prepared = prepare(model, shapes={}, native=lambda: native).model
    assert "If" not in {node.op_type for node in prepared.graph}
    x = np.arange(3, dtype=np.float32)[None]
    expected = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(["y"], {"x": x})[0]
    answer = onnxruntime.InferenceSession(prepared.to_bytes()).run(["y"], {"x": x})[0]
    assert np.array_equal(expected, answer)
