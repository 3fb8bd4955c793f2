"""Constants that ONNX Runtime computes ahead: their bound holds; where it is open, a process of its own starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.core.child_process import reuse_children
from onnxport.formats.model import Model
from onnxport.runtimes.ort.constant_sizes import bound_constants
from onnxport.runtimes.ort.offline_optimizer import write_optimized

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> network (float[2,N,4] x) => (float[a,b,c] y) '
_WEIGHTS = (
    "<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[2,1,4] v = {1, 2, 3, 4, 5, 6, 7, 8}, "
)
# Constants as exporters write them; each is added to x.
_KNOWN = {
    "broadcast": "int64[1] n = {0}> { o = Mul (w, v) y = Add (x, o) }",
    "slice of a shape": "int64[1] n = {1}> { s = Shape (x) g = Gather (s, n) f = Cast <to=1> (g) y = Add (x, f) }",
    "one number of a shape": """int64 n = {1}, int64[1] z = {0}> { s = Shape (x) g = Gather (s, n) u = Unsqueeze (g, z)
        f = Cast <to=1> (u) y = Add (x, f) }""",
    "numbers of a shape": """int64 n = {2}, int64[1] z = {0}> { s = Shape (x) g = Gather (s, n) u = Unsqueeze (g, z)
        c = Concat <axis=0> (u, u, z, u) f = Cast <to=1> (c) y = Add (x, f) }""",
    "rows of a table": "int64[3] n = {2, 0, 0}> { g = Gather (w, n) y = Add (x, g) }",
    "columns of a table": "int64[4] n = {2, 0, 1, 3}> { g = Gather <axis=-1> (w, n) y = Add (x, g) }",
    "filled": "int64[2] n = {3, 4}> { g = ConstantOfShape (n) y = Add (x, g) }",
    "moved": """int64[3] n = {1, 4, 3}, int64[2] k = {3, 4}> { r = Reshape (w, n)
        t = Transpose <perm=[0, 2, 1]> (r) i = Neg (t) q = Transpose <perm=[0, 2, 1]> (i) l = Reshape (q, k)
        y = Add (x, l) }""",
    "of a node": "int64[1] n = {0}> { k = Constant <value = float[1] {2}> () p = Pow (w, k) y = Add (x, p) }",
}
_OPEN = {
    "Tile": "int64[2] n = {1, 1}> { o = Tile (w, n) y = Add (x, o) }",
    "Range": "int64 n = {9}, int64 z = {0}, int64 d = {1}> { o = Range (z, n, d) f = Cast <to=1> (o) y = Add (x, f) }",
    "Expand": "int64[2] n = {3, 4}> { o = Expand (w, n) y = Add (x, o) }",
    "filled by a shape": "int64[1] n = {1}> { s = Shape (x) o = ConstantOfShape (s) y = Add (x, o) }",
    "product": "int64[2] n = {4, 3}> { r = Reshape (w, n) o = MatMul (r, w) y = Add (x, o) }",
    "another domain": "int64[1] n = {0}> { o = local.Neg (w) y = Add (x, o) }",
}


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + _WEIGHTS + text)


def _loaded(proto: onnx.ModelProto, folder: Path) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return Model.load(folder / "model.onnx")


@pytest.mark.parametrize("text", _KNOWN.values(), ids=_KNOWN)
def test_constants_have_no_more_elements_than_their_bound(text: str, tmp_path: Path) -> None:
    proto = _model(text)
    bound = bound_constants(_loaded(proto, tmp_path).ir)
    names = [name for node in proto.graph.node for name in node.output if name != "y"]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    computed = session.run(names, {"x": np.ones((2, 3, 4), np.float32)})
    assert sum(each.size for each in computed) <= (bound or 0) < 400


@pytest.mark.parametrize("text", _OPEN.values(), ids=_OPEN)
def test_what_may_grow_has_no_bound(text: str, tmp_path: Path) -> None:
    proto = _model(text)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    assert bound_constants(_loaded(proto, tmp_path).ir) is None


def test_constants_that_double_have_a_bound_that_doubles(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", [f"c{n}", f"c{n}"], [f"c{n + 1}"], axis=0) for n in range(60)]
    proto = helper.make_model(
        helper.make_graph(
            [*nodes, helper.make_node("Identity", ["x"], ["y"])],
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
            [numpy_helper.from_array(np.ones(1, np.float32), "c0")],
        )
    )
    assert (bound_constants(_loaded(proto, tmp_path).ir) or 0) > 2**60


def _children() -> int:
    return sum(
        len(Path(f"/proc/self/task/{task}/children").read_text().split())
        for task in os.listdir("/proc/self/task")
    )


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts processes in /proc")
def test_a_process_runs_only_where_sizes_are_open_and_ends_when_it_is_needed_no_more(tmp_path: Path) -> None:
    before = _children()
    with reuse_children():
        for text, once, running in (
            (_KNOWN["moved"], False, 0),
            (_OPEN["Tile"], True, 0),
            (_OPEN["Tile"], False, 1),
        ):
            model = _loaded(_model(text), tmp_path)
            write_optimized(
                model, tmp_path / "model.onnx", tmp_path / "written.onnx", once_in_a_job=once, level="basic"
            )
            written = onnx.load(tmp_path / "written.onnx")
            assert [node.op_type for node in written.graph.node] == ["Add"], "the constant is computed"
            assert _children() == before + running
