"""Loops whose condition is a vector of one, as Paddle's exporter writes them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnxport

_MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N, 4] x) => (float[N, 4] y) {
    most = Constant <value_ints = [8]> ()
    none = Constant <value_ints = [0]> ()
    limit = Constant <value_ints = [3]> ()
    start = Less (none, limit)
    y, steps = Loop (most, start, x, none) <body = b (int64[1] i, bool[1] go, float[?, 4] s, int64[1] n) =>
        (bool[1] on, float[?, 4] t, int64[1] after) {
        one = Constant <value_ints = [1]> ()
        after = Add (n, one)
        three = Constant <value_ints = [3]> ()
        on = Less (after, three)
        wide = Cast <to = 1> (n)
        t1 = Sin (s)
        t = Add (t1, wide)
    }>
}"""


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_the_types_of_its_body_are_inferred(tmp_path: Path, target: str) -> None:
    onnx.save(onnx.parser.parse_model(_MODEL), tmp_path / "m.onnx")
    assert onnxport.convert_model(tmp_path / "m.onnx", target).report.verdict == "proven"
