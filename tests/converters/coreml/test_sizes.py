"""Open dimensions are in the saved package with finite bounds, and the program takes every size within them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxport.core.errors import UsageError
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from tests.conformance.harness import Array
from tests.converters.coreml.packages import convert, evaluate, spec_of
from tests.converters.tflite.models import model_of, run_onnx

X = np.linspace(-2, 2, 2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
OPEN = {"x": ("N", 3, None, "W")}


def model() -> Model:
    nodes = [helper.make_node("Relu", ["x"], ["e"]), helper.make_node("Sigmoid", ["e"], ["y"])]
    return model_of(nodes, {"x": X}, open_dims=OPEN)


def ranges(package: Path) -> list[tuple[int, int]]:
    array = spec_of(package).description.input[0].type.multiArrayType
    return [(each.lowerBound, each.upperBound) for each in array.shapeRange.sizeRanges]


def test_given_bounds_are_in_the_saved_package_and_every_size_evaluates(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    compiled = convert(model(), package, shape=["x=1..8,3,2..100,5"])
    assert ranges(package) == [(1, 8), (3, 3), (2, 100), (5, 5)]
    assert not compiled.notes
    for shape in ((1, 3, 2, 5), (8, 3, 7, 5)):
        feeds: dict[str, Array] = {"x": np.resize(X, shape)}
        np.testing.assert_allclose(evaluate(package, feeds)["y"], run_onnx(model(), feeds)["y"], rtol=1e-6)


def test_a_size_beyond_the_bounds_is_refused_as_core_ml_does(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    convert(model(), package, shape=["x=1..8,3,2..100,5"])
    with pytest.raises(RunError, match=r"does not take the shape \(9, 3, 2, 5\).*1\.\.8,3,2\.\.100,5"):
        evaluate(package, {"x": np.resize(X, (9, 3, 2, 5))})


def test_bounds_of_our_own_are_finite_hold_the_judges_sizes_and_are_said(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    compiled = convert(model(), package)
    (_, batch), _, (_, height), (_, width) = ranges(package)
    assert batch >= 3
    assert min(height, width) >= 640
    assert max(batch, height, width) < 2**31 - 1
    assert f"--shape x=1..{batch},3,1..{height},1..{width}" in compiled.notes[0]
    assert list(spec_of(package).description.input[0].type.multiArrayType.shape) == [1, 3, 96, 128]


def test_choices_become_enumerated_shapes(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    convert(model(), package, shape=["x=1,3,224|320,224|480"])
    array = spec_of(package).description.input[0].type.multiArrayType
    assert [list(each.shape) for each in array.enumeratedShapes.shapes] == [
        [1, 3, 224, 224],
        [1, 3, 320, 480],
    ]
    assert list(array.shape) == [1, 3, 224, 224]


def test_choices_beside_an_open_dimension_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dimension 4 is open"):
        convert(model(), tmp_path / "m.mlpackage", shape=["x=1,3,224|320,?"])


def ranged_dim_as_coremltools(ct: Any) -> Any:
    dims = ct.RangeDim(1, 8, default=1), 3, ct.RangeDim(2, 100, default=2), 5
    return ct.TensorType("x", shape=ct.Shape(dims))


def enumerated_as_coremltools(ct: Any) -> Any:
    return ct.TensorType("x", shape=ct.EnumeratedShapes([(1, 3, 2, 5), (4, 3, 9, 5)], default=(1, 3, 2, 5)))


@pytest.mark.parametrize(
    ("given", "as_coremltools"),
    [("x=1..8,3,2..100,5", ranged_dim_as_coremltools), ("x=1|4,3,2|9,5", enumerated_as_coremltools)],
)
def test_the_description_is_what_coremltools_writes(tmp_path: Path, given: str, as_coremltools: Any) -> None:
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Function, Placeholder, Program, get_new_symbol

    ours = tmp_path / "m.mlpackage"
    convert(model(), ours, shape=[given])
    placeholder = Placeholder(sym_shape=(get_new_symbol(), 3, get_new_symbol(), 5))
    with Function({"x": placeholder}, opset_version=ct.target.iOS17) as function:
        function.set_outputs([mb.sigmoid(x=mb.relu(x=function.inputs["x"]), name="y")])
    program = Program()
    program.add_function("main", function)
    theirs = ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.precision.FLOAT32,
        inputs=[as_coremltools(ct)],
    ).get_spec()
    read = spec_of(ours)
    assert list(read.description.input) == list(theirs.description.input)
    assert list(read.description.output) == list(theirs.description.output)
    assert read.specificationVersion == theirs.specificationVersion
