"""The pass over the samples: the right tensors, flat memory, and what is wrong with a sample named."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxport.core.errors import InputError
from onnxport.quantize.calibration import calibrate
from onnxport.quantize.calibration.observers import Histogram
from tests.quantize.calibration.conftest import in_memory, ragged, taps


def test_observers_see_inputs_and_tensors_of_samples_that_differ_in_size(model, watch):
    samples = ragged(5)
    seen = calibrate(model, taps(), in_memory(samples), watch=watch)
    weight = onnx.numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    relus = [conv_relu(sample["x"] * sample["k"], weight) for sample in samples]
    for name, values in (("x", [sample["x"] for sample in samples]), ("r", relus)):
        histogram, means = seen[name]
        everything = np.concatenate(
            [np.moveaxis(each, 1, 0).reshape(each.shape[1], -1) for each in values], 1
        )
        assert np.isclose(histogram.low, everything.min(), atol=1e-5)
        assert np.isclose(histogram.high, everything.max(), rtol=1e-5)
        assert np.allclose(means.means(), everything.mean(axis=1), atol=1e-5)
        assert histogram.counts.sum() == everything.size
    assert watch.seen == [(n, 5) for n in range(1, 6)]


def conv_relu(x, weight):
    """In float64, by the definition."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64)), 0)


def test_inputs_alone_need_no_session(model, watch):
    seen = calibrate(model, {"k": (Histogram(0),)}, in_memory(ragged(3)), watch=watch)
    assert (seen["k"][0].low, seen["k"][0].high) == (0.125, 0.375)


def test_observers_that_were_given_stay_empty(model, watch):
    given = taps()
    calibrate(model, given, in_memory(ragged(1)), watch=watch)
    assert given["x"][0].high == -np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_not_finite_is_named(model, value, watch):
    samples = ragged(3)
    samples[1]["x"][0, 0, 0, 0] = value
    with pytest.raises(InputError, match=r"'x' of the sample 1\.npz holds NaN or infinity"):
        calibrate(model, {"r": (Histogram(),)}, in_memory(samples), watch=watch)


def test_a_tensor_that_overflows_is_named(model, watch):
    samples = ragged(3)
    samples[2]["k"][:] = 1e30
    with pytest.raises(InputError, match=r"tensor 'y' holds infinity on the sample 2\.npz.*--exclude"):
        calibrate(model, {"y": (Histogram(),)}, in_memory(samples), watch=watch)


def test_a_sample_that_the_model_refuses_is_named(model, watch):
    with pytest.raises(InputError, match=r"net\.onnx cannot be run on the sample 0\.npz \(x \[1, 3, 5, 9\]"):
        calibrate(model, {"unused": (Histogram(),)}, in_memory(ragged(1)), watch=watch)


def test_external_data_is_read_where_it_lies(model, watch):
    proto = onnx.load(model)
    onnx.save(
        proto,
        model,
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
        convert_attribute=False,
    )
    (model.parent / "net.data").stat()
    seen = calibrate(model, taps(), in_memory(ragged(2)), watch=watch)
    assert seen["r"][0].high > 0
    assert not any(path.stat().st_size > 2000 for path in model.parent.glob("*.onnx"))


def test_what_is_watched_is_what_the_plain_model_computes(model, watch):
    proto = onnx.load(model)
    del proto.graph.output[1], proto.graph.node[-1]
    sample = ragged(1)[0]
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(["y"], sample)
    seen = calibrate(model, {"y": (Histogram(),)}, in_memory([sample]), watch=watch)
    assert seen["y"][0].high == expected.max()
