"""Indices that count from the end, which are out of bounds to MIL from iOS17 on, and those that lie outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.core.errors import CannotConvertError
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.mlprogram.evaluator import Evaluator
from onnxport.runtimes.mlprogram.kernels.registry import Undefined
from tests.conformance.harness import Array
from tests.converters.coreml.packages import convert, evaluate
from tests.converters.tflite.models import model_of, run_onnx

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
# ONNX op -> indices that count from the end, attributes.
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Gather": ([-1, 0, -3], {"axis": 1}),
    "GatherElements": ([[[-1, 0, -3, 2]]] * 2, {"axis": 1}),
    "GatherND": ([[-1, -3], [0, -1]], {}),
    "ScatterElements": ([[[-1, 0, -3, 2]]] * 2, {"axis": 1}),
    "ScatterND": ([[-1, -3], [0, -1]], {}),
}


def converted(
    folder: Path, op: str, indices: Array, *, at_run_time: bool
) -> tuple[Any, Path, dict[str, Array]]:
    feeds: dict[str, Array] = {"x": X, **({"i": indices} if at_run_time else {})}
    constants = [] if at_run_time else [numpy_helper.from_array(indices, "i")]
    names = ["x", "i"]
    if op.startswith("Scatter"):
        shape = indices.shape if op == "ScatterElements" else (2, 4)
        constants.append(numpy_helper.from_array(np.full(shape, -1, np.float32), "u"))
        names.append("u")
    node = helper.make_node(op, names, ["y"], **FORMS[op][1])
    model, package = model_of([node], feeds, constants), folder / "m.mlpackage"
    convert(model, package)
    return model, package, feeds


@pytest.mark.parametrize("at_run_time", [True, False])
@pytest.mark.parametrize("op", FORMS)
def test_an_index_may_count_from_the_end(tmp_path: Path, op: str, at_run_time: bool) -> None:
    model, package, feeds = converted(tmp_path, op, np.array(FORMS[op][0]), at_run_time=at_run_time)
    np.testing.assert_array_equal(evaluate(package, feeds)["y"], run_onnx(model, feeds)["y"])


@pytest.mark.parametrize("op", FORMS)
def test_a_constant_index_outside_is_refused(tmp_path: Path, op: str) -> None:
    with pytest.raises(CannotConvertError, match="an index outside"):
        converted(tmp_path, op, np.array(FORMS[op][0]) + 9, at_run_time=False)


def test_an_index_outside_that_is_fed_is_undefined(tmp_path: Path) -> None:
    _, package, _ = converted(tmp_path, "Gather", np.array([0, 1, 2]), at_run_time=True)
    (function,) = read_package(package).functions.values()
    with pytest.raises(Undefined):
        Evaluator(function).run({"x": X, "i": np.array([0, 1, 3], np.int32)})


def test_an_index_that_cannot_be_negative_is_left_alone(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "zero", "one"], ["first"]),
        helper.make_node("Gather", ["table", "first"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([value]), name) for name, value in (("zero", 0), ("one", 1))
    ]
    constants.append(numpy_helper.from_array(X, "table"))
    model = model_of(nodes, {"x": X}, constants, open_dims={"x": ["N", 3, 4]})
    compiled = convert(model, tmp_path / "m.mlpackage")
    assert "select" not in compiled.operators
    feeds: dict[str, Array] = {"x": X[:1]}
    np.testing.assert_array_equal(evaluate(tmp_path / "m.mlpackage", feeds)["y"], run_onnx(model, feeds)["y"])
