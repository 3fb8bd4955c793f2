"""What `onnxport diff` says of two models: seeded faults, other forms of one model, and models without their names."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from fixtures import models
from onnxport.formats.model import Model
from onnxport.inspection.comparison import Comparison, compare_models
from onnxport.reports.comparison.terminal import comparison_lines
from tests.faults.collection import MODELS, ROWS, Row
from tests.faults.harness import draw
from tests.faults.made import MADE

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
FAULTS = [row for row in ROWS if row.level in ("onnx", "made")]


def compare(first: Path, second: Path) -> Comparison:
    return compare_models(Model.load(first), Model.load(second))


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def parsed(text: str, path: Path, opset: int = 17) -> Path:
    return saved(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'), path)


def faulty(row: Row, folder: Path) -> tuple[Path, Path, str | None]:
    """A right and a wrong model, and the value that the wrong node gives."""
    if row.level == "made":
        right, wrong = MADE[row.fault].models()
        return saved(right, folder / "a.onnx"), saved(wrong, folder / "b.onnx"), MADE[row.fault].where
    path = models.path(MODELS[row.model])
    broken = onnx.load(path)
    where = getattr(importlib.import_module(f"tests.faults.{row.family}"), row.fault)(broken, draw(row))
    return path, saved(broken, folder / "b.onnx"), where


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.id)
def test_a_fault_is_the_first_difference(row: Row, tmp_path: Path) -> None:
    right, wrong, where = faulty(row, tmp_path)
    found = compare(right, wrong)
    assert not found.is_same or [change.kind for change in found.changes] == ["stored"]
    if where is None:
        return
    given = {where}.union(*(node.output for node in onnx.load(right).graph.node if where in node.output))
    if not found.changes:  # an output that another value gives
        assert any(where in detail.what for detail in found.model)
        return
    # What was put in front of the node, or in its place, comes with it.
    first = next((n for n, each in enumerate(found.changes) if each.kind != "added"), len(found.changes) - 1)
    assert given & {change.node.value for change in found.changes[: first + 1]}


def test_a_model_has_no_difference_to_itself_without_names(tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    ends = {value.name for value in (*model.graph.input, *model.graph.output)}
    new = {name: name for name in ends}
    for number, node in enumerate(model.graph.node):
        node.name = ""
        node.input[:] = [new.setdefault(name, f"i{number}_{slot}") for slot, name in enumerate(node.input)]
        node.output[:] = [new.setdefault(name, f"o{number}") for name in node.output]
    for tensor in model.graph.initializer:
        tensor.name = new[tensor.name]
    del model.graph.value_info[:]
    found = compare(DIGITS, saved(model, tmp_path / "renamed.onnx"))
    assert found.is_same
    assert found.equal == len(model.graph.node)


def test_another_opset_is_no_difference_of_nodes(tmp_path: Path) -> None:
    """Squeeze has its axes as an attribute, then as an input."""
    text = "g (float[2,1,3] x) => (float[2,3] y) "
    first = parsed(text + "{ y = Squeeze<axes=[1]>(x) }", tmp_path / "a.onnx", opset=11)
    second = parsed(text + "<int64[1] axes = {1}> { y = Squeeze(x, axes) }", tmp_path / "b.onnx", opset=13)
    found = compare(first, second)
    assert [(detail.what, detail.before, detail.after) for detail in found.model] == [
        ("opset ai.onnx", "11", "13")
    ]
    assert (found.equal, found.changes) == (1, ())


def test_a_default_that_is_written_out_is_no_difference(tmp_path: Path) -> None:
    text = "g (float[2,3] x) => (float[2,3] y) "
    first = parsed(text + "{ y = LeakyRelu(x) }", tmp_path / "a.onnx")
    assert compare(first, parsed(text + "{ y = LeakyRelu<alpha=0.01>(x) }", tmp_path / "b.onnx")).is_same
    found = compare(first, parsed(text + "{ y = LeakyRelu<alpha=0.02>(x) }", tmp_path / "c.onnx"))
    (detail,) = found.changes[0].details
    assert (detail.what, detail.before[:4], detail.after[:4]) == ("attribute alpha", "0.01", "0.02")


def test_weights_in_int8_are_the_same_weights(tmp_path: Path) -> None:
    made = onnxport.quantize_model(DIGITS, "int8-weights", tmp_path / "small.onnx", validate=False).path
    simple = onnxport.optimize_model(DIGITS, tmp_path / "simple.onnx", validate=False).path
    text = comparison_lines(compare(simple, made))
    assert "float32 -> int8 per channel" in text
    model = onnx.load(made)
    weight = next(each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8)
    numbers = numpy_helper.to_array(weight).copy()
    place = np.unravel_index(int(np.argmax(np.abs(numbers))), numbers.shape)
    numbers[place] = -numbers[place]
    weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    found = compare(made, saved(model, tmp_path / "wrong.onnx"))
    (change,) = found.changes
    assert change.kind == "changed"
    assert "1 of " in change.details[0].what
    assert f"[{','.join(map(str, place))}]" in change.details[0].what


def test_an_output_behind_a_cast_names_both_nodes(tmp_path: Path) -> None:
    """Of one name, the value says nothing: a float16 model casts its output back."""
    made = onnxport.quantize_model(DIGITS, "fp16", tmp_path / "half.onnx", validate=False).path
    text = comparison_lines(compare(DIGITS, made))
    assert "what gives output logits: Gemm 'logits' -> Cast " in text
    assert "logits -> logits" not in text


def test_an_added_input_and_another_size_are_said(tmp_path: Path) -> None:
    first = parsed("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }", tmp_path / "a.onnx")
    second = parsed("g (float[1,3] x, float[1] z) => (float[1,3] y) { y = Relu(x) }", tmp_path / "b.onnx")
    text = comparison_lines(compare(first, second))
    assert "input x: float32[N, 3] -> float32[1, 3]" in text
    assert "input z added: float32[1]" in text
