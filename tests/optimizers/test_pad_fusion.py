"""Concat with zeros, which tf2onnx writes for a pad of channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from onnxport.formats.model import Model
from onnxport.optimizers.pad_fusion import fuse_pads
from tests.optimizers.rewritten import run


def made(path: Path, before: float | None, after: float | None, axis: int) -> Path:
    """Concat(before, x, after) of [1, 4, 32, 32]; None leaves an operand out."""
    parts = [("before", before), ("x", 0.0), ("after", after)]
    names = ", ".join(name for name, value in parts if value is not None)
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 32, 32] x) => (float[1, C, H, W] y) {{
        y = Concat <axis = {axis}> ({names})
    }}"""
    model = onnx.parser.parse_model(text)
    for name, value in (("before", before), ("after", after)):
        if value is not None:
            array = np.full((1, 4, 32, 32), value, np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("before", "after", "axis", "fused"),
    [
        (None, 0.0, 1, True),
        (0.0, None, -1, True),
        (2.5, 2.5, 2, True),
        (1.0, 2.0, 1, False),
        (0.0, -0.0, 1, False),
        (None, float("nan"), 1, True),
    ],
)
def test_the_numbers_are_the_same(
    tmp_path: Path, before: float | None, after: float | None, axis: int, fused: bool
) -> None:
    path = made(tmp_path / "m.onnx", before, after, axis)
    model = Model.load(path)
    assert fuse_pads(model) == fused
    x = np.random.default_rng(0).standard_normal((1, 4, 32, 32)).astype(np.float32)
    after_, before_ = run(model, {"x": x})[0], run(Model.load(path), {"x": x})[0]
    np.testing.assert_array_equal(after_.view(np.int32), before_.view(np.int32))


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_the_zeros_are_not_stored(tmp_path: Path, target: str) -> None:
    made_ = onnxport.convert_model(made(tmp_path / "m.onnx", None, 0.0, 1), target)
    assert made_.report.verdict == "proven"
    files = [made_.path] if made_.path.is_file() else [p for p in made_.path.rglob("*") if p.is_file()]
    assert sum(file.stat().st_size for file in files) < 4 * 4 * 32 * 32
