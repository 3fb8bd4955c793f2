"""Steps of `optimize` beside simplification: sizes, unused inputs, float16, and their notes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.core.errors import UsageError
from onnxport.formats.model import Model
from onnxport.optimizers.optimization import optimize
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.passes import Rewritten

# y needs only x; `mask` has an unneeded reader, `size` is read for its shape, `left` has no reader.
UNREAD = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x, float[N, 4] mask, float[M, 2] size, float[2] left) => (float[N, 4] y, int64[2] shape)
{
    h = Relu (x)
    dead = Mul (h, mask)
    y = Neg (h)
    shape = Shape (size)
}
"""
# Inference does not find the output's shape: the operator is unknown to ONNX.
FOREIGN = """
<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
g (float[N, C, 8] x, float[N] w) => (float[N, C] y)
{
    h = Relu (x)
    y = com.example.Reduced (h, w)
}
"""


def model(text: str) -> Model:
    return Model(ir.from_proto(onnx.parser.parse_model(text)))


def done(source: Model, folder: Path, *samples: dict[str, Any], **options: Any) -> Rewritten:
    params = OptimizeParams(**options)
    return optimize(source, params, folder, samples, equivalence=None, phase=lambda name: nullcontext())


DECLARED = """
<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
g (float[2, 3] x) => (float[2, 3] y)
<float[2, 3] h, float[2, 3] k>
{
    h = Relu (x)
    k = com.example.Same (h)
    y = Neg (k)
}
"""


def test_declared_shapes_are_dropped_unless_inference_lacks_them(tmp_path: Path) -> None:
    made = done(model(DECLARED), tmp_path, simplify=False, drop_shapes=True)
    proto = ir.to_proto(made.model.ir)
    assert [info.name for info in proto.graph.value_info] == ["k"]
    assert [len(info.type.tensor_type.shape.dim) for info in proto.graph.output] == [2]
    assert not any("nothing changed" in note for note in made.notes)


def test_inputs_that_no_output_depends_on_are_removed_with_their_readers(tmp_path: Path) -> None:
    made = done(model(UNREAD), tmp_path, simplify=False, prune_unused=True)
    assert [spec.name for spec in made.model.inputs] == ["x", "size"]
    assert [node.op_type for node in made.model.graph] == ["Relu", "Neg", "Shape"]
    assert [note for note in made.notes if "is removed" in note] == [
        "the input 'mask' is removed: no output depends on it",
        "the input 'left' is removed: no output depends on it",
    ]
    (row,) = made.facts["passes"]
    assert (row["pass"], row["nodes"], row["skipped"]) == ("prune unused", [4, 3], None)


def test_removable_inputs_are_named_where_they_stay(tmp_path: Path) -> None:
    made = done(model(UNREAD), tmp_path)
    assert [spec.name for spec in made.model.inputs] == ["x", "mask", "size", "left"]
    assert "no output depends on the input 'mask'; --prune-unused removes it" in made.notes


def test_sizes_are_fixed_everywhere_and_named(tmp_path: Path) -> None:
    made = done(model(FOREIGN), tmp_path, simplify=False, shape="x=2,?,8")
    assert [spec.shape for spec in made.model.inputs] == [(2, "C", 8), (2,)]
    assert made.model.outputs[0].shape == (2, "C"), "which nothing infers"
    assert "fixed for these sizes alone: x[0] N = 2, w[0] N = 2" in made.notes


def test_shapes_inside_follow_the_sizes(tmp_path: Path) -> None:
    made = done(model(UNREAD), tmp_path, simplify=False, shape="x=3,4")
    assert [spec.shape for spec in made.model.outputs] == [(3, 4), (2,)]
    assert made.model.inputs[1].shape == (3, 4), "mask has the same N"


def test_sizes_that_contradict_the_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contradicts input x"):
        done(model(UNREAD), tmp_path, shape="x=3,5")


def test_a_note_says_that_nothing_changed(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
    assert any("nothing changed" in note for note in done(model(text), tmp_path, opset=17).notes)
    assert not any("nothing changed" in note for note in done(model(text), tmp_path, opset=18).notes)
    assert not any("nothing changed" in note for note in done(model(text), tmp_path, shape="x=3").notes)


def test_changes_of_the_whole_model_are_counted(tmp_path: Path) -> None:
    changed = done(model(UNREAD), tmp_path, opset=19, prune_unused=True).facts["changed"]
    assert changed["nodes"] == [4, 3]
    assert changed["opset"] == [17, 19]


def overflowing() -> Model:
    """x times 100 and back: beyond float16 for inputs beyond 655; and an unneeded input."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["mixed"]),
        helper.make_node("Mul", ["mixed", "many"], ["large"]),
        helper.make_node("Div", ["large", "many"], ["y"]),
    ]
    constants = {"w": np.eye(64, dtype=np.float32), "many": np.array(100, np.float32)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", "z", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", ends[:2], ends[2:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Model(ir.from_proto(proto))


def test_float16_is_measured_on_samples_that_have_more_inputs_than_the_model_now_has(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(500, 1000, (2, 64)).astype(np.float32)
    made = done(overflowing(), tmp_path, {"x": x, "z": x}, simplify=False, prune_unused=True, fp16=True)
    assert made.facts["float32 nodes"] == {"values go beyond float16": 2}
    assert not any("no values were measured" in note for note in made.notes)
    path = made.model.save(tmp_path / "half.onnx").path
    (y,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(y, x, rtol=2e-3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"io": "fp16"}, "--io fp16 needs a float16 model"),
        ({"simplify": False, "skip": "x", "opset": 13}, "--skip has no effect with --no-simplify"),
        ({"simplify": False, "passes": "p.yaml", "opset": 13}, "--passes has no effect with --no-simplify"),
        ({"simplify": False, "level": "extended", "opset": 13}, "--level has no effect with --no-simplify"),
        ({"level": "extended", "passes": "p.yaml"}, "--passes and --level exclude each other"),
        ({"simplify": False}, "these options change nothing in the model"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        OptimizeParams(**options)


@pytest.mark.parametrize("simplify", [False, True])
def test_a_branch_that_the_sizes_contradict_keeps_no_file_from_loading(
    simplify: bool, tmp_path: Path
) -> None:
    """As in silero-vad: each branch squeezes an axis that only its number of samples makes 1."""
    text = """<ir_version: 8, opset_import: ["": 16]>
    g (float[A,B,2,2] x, bool flag) => (float[2,2] y)
    <int64[2] axes = {0,1}, int64[1] one = {1}, float[2,2] w = {1,2,3,4}, int64[1] zero = {0}, int64[1] far = {9}> {
        y = If (flag) <
            then_branch = a () => (float[2,2] r) { s = Slice(x, one, far, zero) t = Squeeze(s) r = Gemm(t, w) },
            else_branch = b () => (float[2,2] r) { t = Squeeze(x) r = Gemm(t, w) }
        >
    }"""
    source = onnx.parser.parse_model(text)
    onnx.save(source, tmp_path / "m.onnx")
    pinned = onnx.parser.parse_model(text.replace("[A,B,", "[2,1,"))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match=r"rank|dimension|2D"):
        onnxruntime.InferenceSession(pinned.SerializeToString())
    made = done(Model.load(tmp_path / "m.onnx"), tmp_path, simplify=simplify, shape="x=2,1,2,2")
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2), "flag": np.array(True)}
    made.model.save(tmp_path / "fixed.onnx")
    answers = [
        onnxruntime.InferenceSession(tmp_path / name).run(None, feeds)[0] for name in ("m.onnx", "fixed.onnx")
    ]
    assert np.allclose(*answers)
    assert any("only branch that can run" in note for note in made.notes)
