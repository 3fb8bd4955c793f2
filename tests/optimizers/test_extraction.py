"""`extract`: a part of a model computes what the model computes between the same values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.core.errors import UsageError
from onnxport.formats.model import Model
from onnxport.optimizers.extraction import extract, find_cut

HEAD = '<ir_version: 10, opset_import: ["": 21, "own": 1]>'

# A branch reads `h` and `w` of the main graph; `k` is a weight of the part that is not taken.
CAPTURING = f"""
{HEAD} m (float[N, 4] x, bool flag) => (float[N, 4] y, float[N, 4] z)
<float[4] w = {{1.0, 2.0, 3.0, 4.0}}, float[4] k = {{9.0, 9.0, 9.0, 9.0}}> {{
  h = Relu (x)
  g = Tanh (h)
  b = If (flag) <then_branch = t () => (float[N, 4] p) {{ p = Mul (h, w) }},
                 else_branch = e () => (float[N, 4] q) {{ q = Neg (g) }}>
  y = Exp (b)
  z = Add (x, k)
}}
"""
FUNCTIONS = f"""
{HEAD} m (float[N, 4] x) => (float[N, 4] y) {{
  a = own.twice (x)
  b = own.outer (a)
  y = own.other (b)
}}
<domain: "own", opset_import: ["": 21]> twice (x) => (y) {{ y = Add (x, x) }}
<domain: "own", opset_import: ["": 21, "own": 1]> outer (x) => (y) {{ t = own.twice (x)  y = Neg (t) }}
<domain: "own", opset_import: ["": 21]> other (x) => (y) {{ y = Exp (x) }}
"""
SKIPPING = f"""
{HEAD} m (float[N, 4] x, float[N, 4] more) => (float[N, 4] y) {{
  a = Relu (x)
  b = Neg (a)
  c = Exp (b)
  d = Add (a, c)
  y = Mul (d, more)
}}
"""


def load(folder: Path, text: str) -> Model:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return Model.load(folder / "m.onnx")


def part_of(model: Model, inputs: str, outputs: str) -> Model:
    return extract(model, find_cut(model, [inputs] if inputs else [], [outputs] if outputs else []))


def values(proto: onnx.ModelProto, names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return ONNX Runtime's values of a model, inner ones included."""
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(names, feeds)


def saved(part: Model, folder: Path) -> onnx.ModelProto:
    proto = onnx.load(part.save(folder / "part.onnx").path)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("flag", [True, False])
def test_captures_of_branches_are_values_of_the_part(tmp_path: Path, flag: bool) -> None:
    model = load(tmp_path, CAPTURING)
    proto = saved(part_of(model, "h,g,flag", "y"), tmp_path)
    assert [(each.name, each.type.tensor_type.elem_type) for each in proto.graph.input] == [
        ("h", TensorProto.FLOAT),
        ("g", TensorProto.FLOAT),
        ("flag", TensorProto.BOOL),
    ]
    assert [weight.name for weight in proto.graph.initializer] == ["w"]
    feeds = {"x": np.float32([[1, -2, 0.5, -3]]), "flag": np.array(flag)}
    h, g, y = values(onnx.load(tmp_path / "m.onnx"), ["h", "g", "y"], feeds)
    (again,) = values(proto, ["y"], {"h": h, "g": g, "flag": feeds["flag"]})
    np.testing.assert_array_equal(again, y)


def test_a_capture_that_is_not_listed_is_named(tmp_path: Path) -> None:
    model = load(tmp_path, CAPTURING)
    with pytest.raises(UsageError, match="'y' also depends on 'h'; give --inputs g,flag,h"):
        part_of(model, "g,flag", "y")


def test_functions_that_are_needed_come_along(tmp_path: Path) -> None:
    model = load(tmp_path, FUNCTIONS)
    proto = saved(part_of(model, "a", "b"), tmp_path)
    assert {function.name for function in proto.functions} == {"twice", "outer"}
    (b,) = values(proto, ["b"], {"a": np.float32([[1, 2, 3, 4]])})
    np.testing.assert_array_equal(b, [[-2, -4, -6, -8]])
    assert {each.domain: each.version for each in proto.opset_import} == {"": 21, "own": 1}


def test_the_value_that_leaks_is_the_one_beside_the_cut(tmp_path: Path) -> None:
    """`a` by-passes the cut at `b`: it is named, not the model's input in front of it."""
    with pytest.raises(UsageError, match=r"'d' also depends on 'a'; give --inputs b,a"):
        part_of(load(tmp_path, SKIPPING), "b", "d")


def test_an_input_of_the_model_in_front_of_all_paths_separates(tmp_path: Path) -> None:
    part = part_of(load(tmp_path, SKIPPING), "x,b", "d")
    assert [spec.name for spec in part.inputs] == ["x", "b"]
    assert [node.op_type for node in part.graph] == ["Relu", "Exp", "Add"]


def test_sides_that_are_not_given_are_the_model_s_own(tmp_path: Path) -> None:
    model = load(tmp_path, SKIPPING)
    front = part_of(model, "", "c")
    assert [spec.name for spec in front.inputs] == ["x"], "no value of the part depends on the other"
    back = part_of(model, "d,more", "")
    assert [spec.name for spec in back.outputs] == ["y"]
    assert [(spec.dtype, spec.shape) for spec in back.inputs] == [("float32", ("N", 4))] * 2


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        ("bb", "d", "no value 'bb'; did you mean 'b'"),
        ("", "relu_node", "'relu_node' is a node, not a value; its results are 'a'"),
        ("", "inner", "'inner' lies inside a branch or a loop body"),
        ("w", "d", "'w' is a constant"),
        ("", "f", "the output 'f' of the part is a constant"),
        ("a,more", "c", "no output of the part depends on its input 'more'"),
        ("a", "a", "is an input and an output"),
    ],
)
def test_cuts_that_make_no_part_are_refused(tmp_path: Path, inputs: str, outputs: str, says: str) -> None:
    text = SKIPPING.replace(
        "a = Relu (x)",
        """w = Constant <value = float[4] {1.0, 1.0, 1.0, 1.0}> ()
        yes = Constant <value = bool {1}> ()
        f = If (yes) <then_branch = t () => (float[4] inner) { inner = Neg (w) },
                      else_branch = e () => (float[4] q) { q = Abs (w) }>
        a = Relu (x)""",
    )
    proto = onnx.parser.parse_model(text)
    next(node for node in proto.graph.node if node.op_type == "Relu").name = "relu_node"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=says):
        part_of(Model.load(tmp_path / "m.onnx"), inputs, outputs)


def test_types_that_only_onnx_runtime_infers_are_found(tmp_path: Path) -> None:
    text = f"{HEAD} m (float[N, 4] x) => (float[N, 4] y) {{ a = FastGelu (x)  b = Neg (a)  y = Exp (b) }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.node[0].domain = "com.microsoft"
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    part = part_of(Model.load(tmp_path / "m.onnx"), "a", "y")
    assert [(spec.name, spec.dtype, len(spec.shape)) for spec in part.inputs] == [("a", "float32", 2)]


def test_external_weights_are_mapped_not_copied_into_the_graph(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.eye(64, dtype=np.float32) * n, f"w{n}") for n in (2, 3)]
    proto = onnx.parser.parse_model(
        f"{HEAD} m (float[N, 64] x) => (float[N, 64] y) {{ a = MatMul (x, w2)  y = MatMul (a, w3) }}"
    )
    proto.graph.initializer.extend(weights)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    part = part_of(Model.load(tmp_path / "m.onnx"), "a", "y")
    assert list(part.graph.initializers) == ["w3"]
    made = onnx.load(part.save(tmp_path / "part.onnx").path)
    (y,) = values(made, ["y"], {"a": np.ones((1, 64), np.float32)})
    np.testing.assert_array_equal(y, np.full((1, 64), 3))
