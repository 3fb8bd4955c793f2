"""What is quantized here converts with its scales: changes of the grid and float islands among them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxport
from tests.quantize.small import case

_RNG = np.random.default_rng(11)
_INITIALIZERS = {
    # With smaller kernels, and so less to multiply, they would stay in float beside floats.
    "first": _RNG.normal(size=(4, 3, 5, 5)).astype(np.float32),
    "second": _RNG.normal(size=(5, 4, 5, 5)).astype(np.float32),
    "number": np.float32(0.7),
    "six": np.float32(6),
}
_NODES = {
    "a change of scale": "m = MaxPool <kernel_shape = [2, 2]> (a) b = Div (m, six)",
    "a change of zero point": "m = MaxPool <kernel_shape = [2, 2]> (a) b = Add (m, number)",
    "both": "m = MaxPool <kernel_shape = [2, 2]> (a) n = Mul (m, number) b = Add (n, number)",
    "HardSwish": "b = HardSwish (a)",
    "HardSwish and both": "h = HardSwish (a) n = Mul (h, number) b = Add (n, number)",
    "SiLU": "s = Sigmoid (a) b = Mul (a, s)",
    "Concat of two grids": "s = Sigmoid (a) b = Concat <axis = 2> (a, s)",
}


@pytest.mark.parametrize("target", ["tflite", "coreml", "ort"])
@pytest.mark.parametrize("name", _NODES)
def test_it_is_proven_with_unchanged_scales(name: str, target: str, tmp_path: Path) -> None:
    made = case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,12,12] x) => (float[n,c,h,w] y) {{
            a = Conv (x, first)
            {_NODES[name]}
            y = Conv <pads = [1, 1, 1, 1]> (b, second)
        }}""",
        tmp_path,
        initializers=_INITIALIZERS,
    )
    output = tmp_path / {"tflite": "m.tflite", "coreml": "m.mlpackage", "ort": "m.ort"}[target]
    result = onnxport.convert_model(made.path, target, output, inputs=tmp_path / "samples")
    assert result.report.verdict == "proven"
    if target == "tflite":
        assert "2 of 2 convolutions and matrix products compute in int8" in " ".join(
            result.run.artifacts[0].notes
        )
