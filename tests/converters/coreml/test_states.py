"""Inputs and outputs that become Core ML's states: run like the source's, step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from onnxport.converters.params import CoremlParams
from onnxport.core.errors import UsageError
from onnxport.formats.mlpackage.reader import read_package
from onnxport.formats.model import Model
from onnxport.runtimes.mlprogram import MilRuntime
from tests.conformance.coreml import CoremlConformance
from tests.converters.tflite.models import run_onnx

# A running mean of the inputs, and the number of steps as a scalar.
MEAN = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,3] x, float[2,3] h_in, float count) => (float[2,3] y, float[2,3] h_out, float next)
    <float one = {1.0}, float half = {0.5}> {
    next = Add(count, one)
    s = Add(h_in, x)
    h_out = Mul(s, half)
    z = Neg(h_out)
    y = Div(z, next)
}"""
STATE = {"h_in": "h_out", "count": "next"}
X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def model() -> Model:
    return Model(onnx_ir.from_proto(onnx.parser.parse_model(MEAN)))


def convert(coreml: CoremlConformance, output: Path, **params: object) -> Path:
    before, coreml.params = coreml.params, CoremlParams(**params)  # type: ignore[arg-type]
    try:
        coreml.convert(model(), output)
    finally:
        coreml.params = before
    return output


def test_a_state_is_given_and_read_by_the_names_of_the_source(
    coreml: CoremlConformance, tmp_path: Path
) -> None:
    path = convert(coreml, tmp_path / "m.mlpackage", state=STATE, precision="fp16", minimum_target="iOS18")
    package = read_package(path)
    assert sorted(each.name for each in package.description.state) == ["count", "h_in"]
    assert [each.name for each in package.description.input] == ["x"]
    assert [each.name for each in package.description.output] == ["y"]
    feeds = {"x": X, "h_in": X * 0, "count": np.array(0, np.float32)}
    with MilRuntime(path) as runtime:
        for _ in range(4):
            wanted, given = run_onnx(model(), feeds), runtime.run(feeds)
            assert set(wanted) == set(given)
            for name, value in wanted.items():
                assert given[name].dtype == value.dtype
                assert given[name].shape == value.shape
                np.testing.assert_allclose(given[name], value, atol=4e-3)
            feeds = {"x": X, "h_in": wanted["h_out"], "count": wanted["next"]}


def test_each_run_starts_from_the_state_that_it_is_given(coreml: CoremlConformance, tmp_path: Path) -> None:
    path = convert(coreml, tmp_path / "m.mlpackage", state=STATE, precision="fp16", minimum_target="iOS18")
    feeds = {"x": X, "h_in": X, "count": np.array(1, np.float32)}
    with MilRuntime(path) as runtime:
        first, second = runtime.run(feeds), runtime.run(feeds)
    assert all(np.array_equal(first[name], second[name]) for name in first)


FP16 = {"precision": "fp16", "minimum_target": "iOS18"}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({**FP16, "state": {"h": "h_out"}}, "no input 'h'"),
        ({**FP16, "state": {"h_in": "h"}}, "no output 'h'"),
        ({**FP16, "state": {"h_in": "next"}}, "does not fit"),
        ({**FP16, "state": {"h_in": "h_out", "x": "h_out"}}, "several inputs"),
        ({**FP16, "state": {**STATE, "x": "y"}}, "makes every output a state"),
        ({"precision": "fp16", "state": STATE}, "iOS18"),
        ({"minimum_target": "iOS18", "state": STATE}, "float16"),
    ],
)
def test_pairs_that_are_no_state_are_usage_errors(
    coreml: CoremlConformance, tmp_path: Path, params: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        convert(coreml, tmp_path / "m.mlpackage", **params)
