"""A run says why its file is larger than the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport

RNG = np.random.default_rng(0)


def blocked(folder: Path, *, block: int) -> Path:
    """A product whose weight has a scale per block of `block` rows; of one per column where it is 0."""
    scales = f"float[{256 // block}, 1024] s" if block else "float[1024] s"
    settings = f"axis = 0, block_size = {block}" if block else "axis = 1"
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[1, 256] x) => (float[1, 1024] y) <int8[256, 1024] w, {scales}>
    {{ d = DequantizeLinear <{settings}> (w, s) y = MatMul (x, d) }}""")
    del proto.graph.initializer[:]
    shape = (256 // block, 1024) if block else (1024,)
    numbers: dict[str, np.ndarray[Any, Any]] = {
        "w": RNG.integers(-127, 128, (256, 1024)).astype(np.int8),
        "s": RNG.uniform(0.01, 0.02, shape).astype(np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in numbers.items())
    path = folder / "blocked.onnx"
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize(
    ("target", "block", "is_widened"),
    [("coreml", 64, True), ("tflite", 64, False), ("tflite", 0, False)],
    ids=["blocks as floats", "blocks as integers", "a scale per column"],
)
def test_integers_that_become_floats_are_said(
    target: Literal["coreml", "tflite"], block: int, is_widened: bool, tmp_path: Path
) -> None:
    source = blocked(tmp_path, block=block)
    output = tmp_path / {"coreml": "made.mlpackage", "tflite": "made.tflite"}[target]
    made = onnxport.convert_model(source, target, output).run.artifacts[0]
    said = [note for note in made.notes if "stores weights as floats" in note]
    assert bool(said) is is_widened
    if is_widened:
        assert "786.4 kB more" in said[0]
        assert "convert the float original with --precision int8-weights" in said[0]
