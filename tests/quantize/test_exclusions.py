"""--exclude means nodes by the names that the user knows, whatever settling made of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxport.core.errors import UsageError
from onnxport.formats.model import Model
from onnxport.quantize.eligibility import excluded_nodes
from onnxport.quantize.float_graph import simplify_for_quantization

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
network (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w = {1, 0, 0, 1}, float[2] one = {1, 1}, float[2] zero = {0, 0}>
{
  [first] a = Conv (x, w)
  [normal] b = BatchNormalization (a, one, zero, zero, one)
  [relu] c = Relu (b)
  [second] y = Conv (c, w)
}"""


@pytest.fixture
def both(tmp_path: Path) -> tuple[Model, Model]:
    """The model and its settled graph, in which BatchNormalization has become part of the Conv before it."""
    onnx.save(onnx.parser.parse_model(_TEXT), tmp_path / "model.onnx")
    source = Model.load(tmp_path / "model.onnx")
    graph = simplify_for_quantization(source, tmp_path).model
    assert [node.op_type for node in graph.graph] == ["Conv", "Relu", "Conv"]
    return source, graph


def test_a_node_is_meant_by_its_name(both: tuple[Model, Model]) -> None:
    assert excluded_nodes(*both, ["second"]) == {"second"}


def test_an_operator_means_all_of_its_nodes(both: tuple[Model, Model]) -> None:
    convolutions = {node.name for node in both[1].graph if node.op_type == "Conv"}
    assert excluded_nodes(*both, ["Conv"]) == convolutions
    assert len(convolutions) == 2


@pytest.mark.parametrize("name", ["normal", "BatchNormalization", "first"])
def test_what_settling_joined_is_what_it_became_part_of(both: tuple[Model, Model], name: str) -> None:
    assert excluded_nodes(*both, [name]) == {both[1].graph[0].name}


def test_an_unknown_name_is_refused_with_the_nearest(both: tuple[Model, Model]) -> None:
    with pytest.raises(UsageError, match=r"--exclude secnd: .*did you mean 'second'"):
        excluded_nodes(*both, ["secnd"])
    with pytest.raises(UsageError, match="its operators are BatchNormalization, Conv, Relu"):
        excluded_nodes(*both, ["zzzzzzzz"])
