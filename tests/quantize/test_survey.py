"""One pass over the samples tells what a second pass, over the graph with scaled channels, would tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.formats.model import Model
from onnxport.pipelines.runner.clock import Clock
from onnxport.quantize import int8
from onnxport.quantize.accuracy.rows import RowSample
from onnxport.quantize.calibration import calibrate
from onnxport.quantize.calibration.observers import ChannelExtremes, ChannelMeans, Histogram
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.measurement import choose_observers, read_measurements
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.survey import survey
from onnxport.quantize.tensor_summary import TensorSummary
from onnxport.samples.readers import find_samples

_RNG = np.random.default_rng(8)
_REACH = np.where(np.arange(8) == 3, 10.0, 0.1).astype(np.float32)
_WEIGHTS = {
    "first": _RNG.normal(size=(8, 3, 3, 3)).astype(np.float32) * _REACH[:, None, None, None],
    "second": _RNG.normal(size=(8, 8, 1, 1)).astype(np.float32) / _REACH[:, None, None],
    "third": _RNG.normal(size=(8, 1, 3, 3)).astype(np.float32) * _REACH[:, None, None, None],
    "last": _RNG.normal(size=(5, 8, 1, 1)).astype(np.float32),
}
_NETWORKS = {
    "equalized": "r = Relu (a) y = Conv (r, second)",
    "scaled": "b = Conv <group = 8> (a, third) h = HardSwish (b) y = Conv (h, last)",
}


def _observers() -> list[Histogram | RowSample | ChannelMeans | ChannelExtremes]:
    return [Histogram(0), RowSample(1, 2), ChannelMeans(1), ChannelExtremes(1)]


@pytest.mark.parametrize("behind", [1, 4], ids=["same channels", "behind a Flatten"])
def test_a_divided_summary_is_that_of_divided_values(behind: int) -> None:
    factors = np.array([0.125, 1.0, 0.5], np.float32)  # powers of two, so that nothing is rounded
    shape = (1, 3 * behind) if behind > 1 else (1, 3, 8, 8)
    samples = _RNG.normal(size=(2, *shape)).astype(np.float32)
    by = np.repeat(factors, behind).reshape(1, -1, *(1,) * (len(shape) - 2))
    plain, divided = _observers(), _observers()
    for number, sample in enumerate(samples):
        for one, other in zip(plain, divided, strict=True):
            one.observe(sample, number)
            other.observe(sample / by, number)
    found, wanted = TensorSummary.of(plain).divided(factors), TensorSummary.of(divided)
    assert (found.low, found.high) == (wanted.low, wanted.high)
    np.testing.assert_allclose(found.means, wanted.means, rtol=1e-6)
    np.testing.assert_array_equal(found.extremes, wanted.extremes)
    assert found.rows is not None
    assert found.rows.shape[1] == 3 * behind
    reached = np.abs(found.rows).max(axis=0)
    assert np.all(reached <= np.abs(samples / by).max(axis=(0, 1, *range(3, samples.ndim))) * 1.01)


@pytest.mark.parametrize("network", _NETWORKS)
@pytest.mark.parametrize("method", ["mse", "minmax"])
def test_one_pass_tells_what_a_second_one_would(network: str, method: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,12,12] x) => (float[n,c,h,w] y) {{
            a = Conv <pads = [1, 1, 1, 1]> (x, first)
            {_NETWORKS[network]}
        }}"""
    )
    for name, array in _WEIGHTS.items():
        if name in _NETWORKS[network] or name == "first":
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "float.onnx")
    for number in range(4):
        np.savez(tmp_path / f"{number}.npz", x=_RNG.normal(size=(1, 3, 12, 12)).astype(np.float32))
    model = Model.load(tmp_path / "float.onnx")
    params = QuantizeParams(precision="int8", calib=tmp_path, method=method, cache=False)
    files = find_samples(tmp_path, model.inputs, 4)
    setting = QuantizationInputs(files, (), tmp_path, Clock(None))

    done = survey(model, int8.plan_graph(model, params, setting), params, setting)
    planned, found = done.planned, done.candidates
    assert planned.graph.factors if network == "equalized" else planned.even

    graph, placement = planned.graph.model.graph, planned.placement
    wanted = choose_observers(graph, placement, params, len(files))
    planned.graph.model.save(planned.graph.path)
    seen = calibrate(planned.graph.path, wanted, files, watch=setting.watch)
    summaries = {name: TensorSummary.of(observers) for name, observers in seen.items()}
    second = read_measurements(graph, placement, params, summaries, even=planned.even)[method]
    one = found[method]
    for name in placement.observed:
        np.testing.assert_allclose(one.ranges[name], second.ranges[name], rtol=0.02, err_msg=name)
    assert set(second.means) <= set(one.means)
    for name, means in second.means.items():
        np.testing.assert_allclose(one.means[name], means, rtol=1e-3, atol=1e-5, err_msg=name)
    assert set(second.maxima) == set(one.maxima)
    for name, maxima in second.maxima.items():
        np.testing.assert_allclose(one.maxima[name], maxima, rtol=1e-4, err_msg=name)
