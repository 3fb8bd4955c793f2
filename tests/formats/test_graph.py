"""The operator graph, read from each format."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import flatbuffers
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

import onnxport
from onnxport.core.errors import InputError
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.onnx import read_onnx
from onnxport.formats.graph.ort import read_ort
from onnxport.formats.graph.tflite import read_tflite
from onnxport.profiling.tflite_graph import read_operators
from tests.validate.lower import as_ort

BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[2,N] x) => (float[2,N] y) <float[1] w = {2}> {
  [before] a = Mul(x, w)
  [choice] y = If(c) <
    then_branch = t () => (float[2,N] p) { p = Neg(a) },
    else_branch = e () => (float[2,N] q) { q = LeakyRelu<alpha = 0.5>(w) }>
}"""
SINGLE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Neg(x) }"""


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "branches.onnx"
    onnx.save(onnx.parser.parse_model(BRANCHES), path)
    return path


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    onnx.save(onnx.parser.parse_model(SINGLE), folder / "m.onnx")
    return onnxport.convert_model(folder / "m.onnx", "tflite", folder / "m.tflite", validate=False).path


def check_branches(graph: OperatorGraph) -> None:
    before, choice = graph.link().nodes
    assert [each.name for each in graph.inputs] == ["c", "x"]
    assert [(each.name, each.dtype, each.size, each.is_constant) for each in graph.constants] == [
        ("w", "float32", 1, True)
    ]
    assert before.inputs[0] is not None
    assert before.inputs[0].shape == (2, "N")
    assert choice.producers == [before]
    assert {each.name for each in choice.reads()} == {"c", "a", "w"}
    other = choice.bodies["else_branch"].nodes[0]
    assert (other.op, other.attributes, other.inputs[0] is graph.constants[0]) == (
        "LeakyRelu",
        {"alpha": 0.5},
        True,
    )
    assert sorted(node.op for node in graph.walk()) == ["If", "LeakyRelu", "Mul", "Neg"]


def test_an_onnx_file_and_an_ort_file_give_the_same_graph(branches: Path, tmp_path: Path) -> None:
    check_branches(read_onnx(branches))
    check_branches(read_ort(as_ort(branches, tmp_path / "m.ort", "DISABLE_ALL")).graph)


def test_a_deep_graph_is_pickled() -> None:
    tensors = [Tensor(f"v{place}") for place in range(3001)]
    nodes = [Node("Neg", inputs=(a,), outputs=(b,)) for a, b in pairwise(tensors)]
    assert len(pickle.loads(pickle.dumps(OperatorGraph(nodes))).nodes) == 3000


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_an_operator_of_a_tflite_file_may_have_no_vector_of_inputs_or_outputs(
    side: str, tflite: Path, tmp_path: Path
) -> None:
    model = schema.ModelT.InitFromPackedBuf(tflite.read_bytes(), 0)
    setattr(model.subgraphs[0].operators[0], side, None)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(builder.Output()))
    node = read_tflite(path).main.graph.nodes[0]
    assert (node.op, getattr(node, side)) == ("NEG", ())
    assert [each.op for each in read_operators(path).main.nodes] == ["NEG"]


def test_a_damaged_file_is_an_input_error(tflite: Path, branches: Path, tmp_path: Path) -> None:
    cut = tmp_path / "m.tflite"
    cut.write_bytes(tflite.read_bytes()[:300])
    with pytest.raises(InputError):
        read_tflite(cut)
    cut = as_ort(branches, tmp_path / "m.ort", "DISABLE_ALL")
    cut.write_bytes(cut.read_bytes()[:300])
    with pytest.raises(InputError):
        read_ort(cut)
