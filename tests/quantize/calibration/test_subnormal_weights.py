"""Weights below float32's normal range are 0 in the copy that calibration runs, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxport.quantize.calibration.session import write_tapped

_RNG = np.random.default_rng(0)
_SHAPES = {"conv": (4, 4, 3, 3), "gemm": (400, 5), "both": (5, 5), "added": (5,)}
_NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
network (float[1,4,10,10] x) => (float[n,m] y) {
    c = Conv <pads=[1, 1, 1, 1]> (x, conv) f = Flatten (c) g = Gemm (f, gemm) h = MatMul (g, both)
    i = MatMul (both, both) a = Add (h, added) y = Add (a, i) }"""


def _write(folder: Path, *, external: bool) -> dict[str, np.ndarray]:
    """Write a network whose every fourth weight decayed to less than the least normal number."""
    weights = {}
    for name, shape in _SHAPES.items():
        array = _RNG.normal(size=shape).astype(np.float32)
        array.reshape(-1)[::4] = _RNG.choice([1e-39, -1e-39, 1e-45], array.reshape(-1)[::4].shape)
        array.reshape(-1)[1] = np.finfo(np.float32).tiny
        weights[name] = array
    proto = onnx.parser.parse_model(_NETWORK)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for name, each in weights.items())
    onnx.save(
        proto,
        folder / "settled.onnx",
        save_as_external_data=external,
        location="settled.onnx.data",
        size_threshold=0,
    )
    return weights


@pytest.mark.parametrize("external", [False, True])
def test_only_weights_of_products_become_zero_and_results_stay_the_same(
    tmp_path: Path, external: bool
) -> None:
    weights = _write(tmp_path, external=external)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_tapped(tmp_path / "settled.onnx", ["c", "h", "y"], tmp_path / "tapped.onnx")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    copy = onnx.load(tmp_path / "tapped.onnx")
    found = {each.name: onnx.numpy_helper.to_array(each) for each in copy.graph.initializer}
    small = np.finfo(np.float32).tiny
    for name in ("conv", "gemm"):
        expected = np.where(np.abs(weights[name]) < small, np.float32(0), weights[name])
        assert (expected == 0).sum() == weights[name].size // 4
        np.testing.assert_array_equal(found[name], expected)
    for name in ("both", "added"):  # another operand of a product, and a summand
        np.testing.assert_array_equal(found[name], weights[name])
    feeds = {"x": _RNG.normal(size=(1, 4, 10, 10)).astype(np.float32)}
    (y,) = onnxruntime.InferenceSession(tmp_path / "settled.onnx").run(["y"], feeds)
    (again,) = onnxruntime.InferenceSession(tmp_path / "tapped.onnx").run(["y"], feeds)
    np.testing.assert_array_equal(again, y)


def test_a_network_without_them_keeps_its_weights_in_their_file(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,5] x) => (float[1,5] y) { y = MatMul (x, w) }"""
    )
    weight = _RNG.normal(size=(5, 5)).astype(np.float32)
    weight[0] = 0
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "settled.onnx", save_as_external_data=True, location="data", size_threshold=0)
    write_tapped(tmp_path / "settled.onnx", ["y"], tmp_path / "tapped.onnx")
    (kept,) = onnx.load(tmp_path / "tapped.onnx", load_external_data=False).graph.initializer
    assert kept.data_location == onnx.TensorProto.EXTERNAL
