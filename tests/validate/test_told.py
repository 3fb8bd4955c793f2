"""What a report says of a pair: one set of numbers that agree with each other and with the verdict."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from fixtures import graphs
from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report
from tests.validate import lower
from tests.validate.test_criteria import samples, wide_mlp


def saved(model: onnx.ModelProto, path: Path) -> Artifact:
    onnx.save(model, path)
    return Artifact.open(path)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')


def verdict(folder: Path, source: onnx.ModelProto, candidate: onnx.ModelProto, **options: Any) -> Report:
    with Judge(saved(source, folder / "a.onnx"), ValidateParams(**options)) as judge:
        return judge.verdict(saved(candidate, folder / "b.onnx"))


def with_nan(model: onnx.ModelProto) -> onnx.ModelProto:
    """NaN in the last of the weights."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = copy.graph.initializer[-1]
    values = numpy_helper.to_array(tensor).copy()
    values.flat[:] = np.nan
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return copy


def test_nan_on_one_side_is_an_infinite_difference_wherever_one_is_told(tmp_path: Path) -> None:
    report = verdict(tmp_path, graphs.mlp(), with_nan(graphs.mlp()))
    (output,) = report.outputs
    told = {figure.metric: figure.value for figure in output.figures}
    assert (output.max_abs, output.mean_abs, output.sqnr_db) == (math.inf, math.inf, -math.inf)
    assert (told["max_abs"], told["mean_abs"], told["sqnr"]) == (math.inf, math.inf, -math.inf)
    assert output.broken == f"NaN in {output.elements:,} of {output.elements:,} where the reference has none"
    assert output.broken in report.reason


CLIPPED = "g (float[N, 8] x) => (float[N, 8] y) <float low = {-50.0}, float high = {50.0}> { y = Clip (x, low, high) }"
PLAIN = "g (float[N, 8] x) => (float[N, 8] y) { y = Identity (x) }"


def test_figures_are_over_ordinary_inputs_and_faults_are_found_on_all(tmp_path: Path) -> None:
    (output,) = verdict(tmp_path, parsed(PLAIN), parsed(CLIPPED)).outputs
    told = {figure.metric: figure.value for figure in output.figures}
    assert output.verdict == "not equivalent"
    assert output.mismatches > 0
    assert output.worst is not None
    assert "large" in output.worst.input_set
    assert (output.max_abs, told["max_abs"], output.sqnr_db) == (0.0, 0.0, None)
    assert output.scale < 50
    assert output.histogram is not None
    assert output.histogram.equal < output.elements
    # What stands in the line and the table belongs to the element that the reason names.
    assert output.difference == abs(output.worst.reference - output.worst.candidate) > 0
    assert output.share == output.difference / output.worst.scale
    assert f"{output.difference:.1e}" in output.rule


def test_a_budget_in_absolute_terms_is_not_about_the_magnitudes_of_companions(tmp_path: Path) -> None:
    """Rounding at 1e5 is more than 0.001, and no loss: a product in two halves."""
    values = np.float32(np.random.default_rng(0).standard_normal((64, 8)))
    source = parsed("g (float[N, 64] x) => (float[N, 8] y) { y = MatMul (x, w) }")
    halves = parsed(
        """g (float[N, 64] x) => (float[N, 8] y) { a, b = Split <axis = 1> (x)
        c = MatMul (a, u) d = MatMul (b, v) y = Add (c, d) }"""
    )
    for model, names in ((source, {"w": values}), (halves, {"u": values[:32], "v": values[32:]})):
        for name, array in names.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    report = verdict(tmp_path, source, halves, budget={"max_abs": 1e-3})
    assert report.verdict == "proven", report.reason


@pytest.fixture
def int8(tmp_path: Path) -> tuple[Artifact, Artifact]:
    source = tmp_path / "source.onnx"
    onnx.save(wide_mlp(), source)
    made = lower.static(wide_mlp(), samples(), tmp_path / "int8.onnx")
    return Artifact.open(source), Artifact.open(made)


def test_quality_without_a_budget_names_the_floor_and_advises_a_budget(
    int8: tuple[Artifact, Artifact],
) -> None:
    source, candidate = int8
    with Judge(source, ValidateParams()) as judge:
        report = judge.verdict(candidate)
    assert report.verdict == "proven"
    assert (
        "; no budget was given, only the floor of 5 dB; each node is the source's, quantized" in report.reason
    )
    assert any("--budget" in note for note in report.notes)
    with Judge(source, ValidateParams(budget={"sqnr": 6.0})) as judge:
        report = judge.verdict(candidate)
    assert "no budget" not in report.reason
    assert not any("--budget" in note for note in report.notes)


def test_classes_that_get_lost_are_warned_of(tmp_path: Path) -> None:
    """Beside a logit that never changes all others are rounded away."""
    source = parsed(
        """g (float[N, 64] x) => (float[N, 64] y) <float[64, 64] w>
        { a = MatMul (x, w) y = Softmax (a) }"""
    )
    values = np.float32(np.random.default_rng(1).standard_normal((64, 64)) / 60)
    source.graph.initializer.append(numpy_helper.from_array(values, "w"))
    fed = [{"x": np.float32(np.random.default_rng(i).standard_normal((1, 64)))} for i in range(3)]
    original = saved(source, tmp_path / "a.onnx")
    made = lower.static(onnx.load(original.path), fed, tmp_path / "int8.onnx")
    with Judge(original, ValidateParams()) as judge:
        report = judge.verdict(Artifact.open(made))
    assert report.verdict == "proven", report.reason
    assert any("the top-1 class of" in note for note in report.notes), report.reason


def fed(folder: Path, *arrays: np.ndarray[Any, Any]) -> Path:
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number}.npz", x=array)
    return folder


@pytest.mark.parametrize("place", [0, 2])
def test_a_set_of_nan_takes_nothing_from_what_the_others_prove(place: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [np.float32(rng.standard_normal((1, 4))) for _ in range(2)]
    arrays.insert(place, np.full((1, 4), np.nan, np.float32))
    model = parsed("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    report = verdict(tmp_path, model, model, inputs=fed(tmp_path / "in", *arrays))
    assert report.verdict == "proven"
    (note,) = [note for note in report.notes if "NaN" in note]
    assert f"{place}.npz" in note
