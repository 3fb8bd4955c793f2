"""The pass over the samples: the right tensors, flat memory, and what is wrong with a sample named."""

import functools
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxport.artifact import TensorSpec
from onnxport.errors import InputError
from onnxport.quantize.calibration import calibrate
from onnxport.quantize.calibration.observers import ChannelMeans, Histogram
from onnxport.samples.readers import SampleFile

SPECS = (TensorSpec("x", "float32", (None, 3, None, None)), TensorSpec("k", "float32", (1,)))


class Watch:
    def __init__(self):
        self.seen = []

    def phase(self, name):
        return nullcontext()

    def progress(self, done, total):
        self.seen.append((done, total))


@pytest.fixture
def model(tmp_path):
    """Two inputs of open sizes; `unused` fails on every sample, so a session that computes it is found out."""
    text = """
    <ir_version: 10, opset_import: ["" : 17]>
    net (float[n, 3, h, w] x, float[1] k) => (float[n, 4, h, w] y, float[7, 7] unused)
    <float[4, 3, 3, 3] weight, int64[2] wrong = {7, 7}>
    {
        scaled = Mul(x, k)
        c = Conv<pads=[1, 1, 1, 1]>(scaled, weight)
        r = Relu(c)
        y = Exp(r)
        unused = Reshape(r, wrong)
    }
    """
    proto = onnx.parser.parse_model(text)
    weight = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(weight, "weight"),
            onnx.numpy_helper.from_array(np.array([7, 7]), "wrong"),
        ]
    )
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    return path


def ragged(count, seed=0):
    generator = np.random.default_rng(seed)
    return [
        {
            "x": generator.standard_normal((1 + n % 2, 3, 5 + n, 9 + 2 * n), np.float32),
            "k": np.full(1, 1 + n, np.float32),
        }
        for n in range(count)
    ]


def files_of(samples):
    return [
        SampleFile(Path(f"{n}.npz"), f"{n}.npz", SPECS, functools.partial(dict, sample))
        for n, sample in enumerate(samples)
    ]


def taps():
    return {name: (Histogram(), ChannelMeans(1)) for name in ("x", "r")}


def test_observers_see_inputs_and_tensors_of_samples_that_differ_in_size(model):
    samples = ragged(5)
    watch = Watch()
    seen = calibrate(model, taps(), files_of(samples), watch=watch)
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


def test_inputs_alone_need_no_session(model):
    seen = calibrate(model, {"k": (Histogram(0),)}, files_of(ragged(3)), watch=Watch())
    assert (seen["k"][0].low, seen["k"][0].high) == (1, 3)


def test_observers_that_were_given_stay_empty(model):
    given = taps()
    calibrate(model, given, files_of(ragged(1)), watch=Watch())
    assert given["x"][0].high == -np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_not_finite_is_named(model, value):
    samples = ragged(3)
    samples[1]["x"][0, 0, 0, 0] = value
    with pytest.raises(InputError, match=r"'x' of the sample 1\.npz holds NaN or infinity"):
        calibrate(model, {"r": (Histogram(),)}, files_of(samples), watch=Watch())


def test_a_tensor_that_overflows_is_named(model):
    samples = ragged(3)
    samples[2]["k"][:] = 1e30
    with pytest.raises(InputError, match=r"tensor 'y' holds infinity on the sample 2\.npz.*--exclude"):
        calibrate(model, {"y": (Histogram(),)}, files_of(samples), watch=Watch())


def test_a_sample_that_the_model_refuses_is_named(model):
    with pytest.raises(InputError, match=r"net\.onnx cannot be run on the sample 0\.npz \(x \[1, 3, 5, 9\]"):
        calibrate(model, {"unused": (Histogram(),)}, files_of(ragged(1)), watch=Watch())


def test_external_data_is_read_where_it_lies(model):
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
    seen = calibrate(model, taps(), files_of(ragged(2)), watch=Watch())
    assert seen["r"][0].high > 0
    assert not any(path.stat().st_size > 2000 for path in model.parent.glob("*.onnx"))


def test_what_is_watched_is_what_the_plain_model_computes(model):
    proto = onnx.load(model)
    del proto.graph.output[1], proto.graph.node[-1]
    sample = ragged(1)[0]
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(["y"], sample)
    seen = calibrate(model, {"y": (Histogram(),)}, files_of([sample]), watch=Watch())
    assert seen["y"][0].high == expected.max()
