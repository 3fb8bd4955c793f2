"""The driver of every target: it lowers what it can, and lists all refusals at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxport
from onnxport.converters.driver import Driver
from onnxport.converters.lowering import NodeView, Registry
from onnxport.core.errors import CannotConvertError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
REGISTRY: Registry[str, None] = Registry("Paper", {"Never": "has no form on paper"})


@REGISTRY.lower("Add")
def add(node: NodeView[str], builder: None) -> None:
    node.emit(" + ".join(node.rest()))


@REGISTRY.lower("Log")
def log(node: NodeView[str], builder: None) -> None:
    if node.x.startswith("-"):
        raise ArithmeticError("of a negative number")
    node.emit(f"log({node.x})")


class Paper(Driver[str, None]):
    """A target of formulas on paper."""

    target, unported = "Paper", "a type"
    errors = (ArithmeticError,)

    @staticmethod
    def constant(array: Array) -> str:
        return str(array)

    def lower_node(self, node: ir.Node, operands: Sequence[str | None]) -> None:
        view = NodeView(node, operands)
        self.registry.run(view, None)
        for index, result in view.results.items():
            self.values[node.outputs[index]] = result

    def stand_in(self, value: ir.Value) -> str:
        return "?"

    def nested_values(self, visible: Mapping[ir.Value, str]) -> dict[ir.Value, str]:
        return dict(visible)


def lowered(text: str, **inputs: str) -> tuple[Paper, list[str | None]]:
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> main {text}')
    driver = Paper(model.graph, REGISTRY)
    driver.values |= {value: inputs[value.name or ""] for value in model.graph.inputs}
    driver.lower_nodes()
    return driver, [driver.find(value) for value in model.graph.outputs]


def test_a_graph_is_lowered_node_by_node() -> None:
    driver, results = lowered(
        "(float x) => (float z) <float one = {1.0}> { y = Add(x, one) z = Log(y) }", x="x"
    )
    driver.check_refusals()
    assert results == ["log(x + 1.0)"]


def test_all_refusals_are_listed_at_once() -> None:
    driver, _ = lowered(
        "(float x) => (float z) <float a, float b> { a = Never(x) b = Log(x) z = Other(b) }", x="-x"
    )
    with pytest.raises(CannotConvertError, match="3 of 3 nodes have no equivalent in Paper") as refused:
        driver.check_refusals()
    assert [(each.op, each.why) for each in refused.value.refusals] == [
        ("Never", "has no form on paper"),
        ("Log", "of a negative number"),
        ("Other", "has no lowering to Paper yet; cut the model around it"),
    ]


def test_a_node_behind_a_refused_one_is_lowered_on_a_stand_in() -> None:
    driver, results = lowered("(float x) => (float z) <float y> { y = Never(x) z = Log(y) }", x="x")
    assert results == ["log(?)"]
    assert [each.op for each in driver.refusals] == ["Never"]


def test_a_nested_graph_sees_the_values_given_to_it_only() -> None:
    driver, _ = lowered("(float x) => (float y) { y = Log(x) }", x="x")
    assert driver.lower(driver.graph, {driver.graph.inputs[0]: "inner"}) == ["log(inner)"]
    assert driver.find(driver.graph.outputs[0]) == "log(x)"


def test_a_node_behind_one_of_unknown_rank_is_not_called_unsupported(tmp_path: Path) -> None:
    """scikit-learn's text classifiers: what comes behind the counts of words has a rewriting, and no rank yet."""
    text = """<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 3, "com.microsoft" : 1]>
    g (string[N] texts) => (int64[N] label, float[N, 2] scores) {
        words = com.microsoft.Tokenizer <mark: int = 0, mincharnum: int = 1, pad_value = "#",
            separators = [" "]> (texts)
        counts = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
            ngram_counts = [0], ngram_indexes = [0, 1], pool_strings = ["a", "b"]> (words)
        norms = ai.onnx.ml.Normalizer <norm = "L2"> (counts)
        label, scores = ai.onnx.ml.LinearClassifier <coefficients: floats = [1.0, 2.0, 3.0, 4.0],
            classlabels_ints: ints = [0, 1]> (norms)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(CannotConvertError) as refused:
        onnxport.convert_model(tmp_path / "m.onnx", "tflite")
    assert {each.op for each in refused.value.refusals} == {
        "input",
        "com.microsoft::Tokenizer",
        "TfIdfVectorizer",
    }
