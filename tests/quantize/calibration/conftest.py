"""A small model, samples of several sizes for it, and a watch that remembers."""

import functools
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.formats.artifact import TensorSpec
from onnxport.quantize.calibration.observers import ChannelMeans, Histogram
from onnxport.samples.readers import SampleFile, find_samples

SPECS = (TensorSpec("x", "float32", (None, 3, None, None)), TensorSpec("k", "float32", (1,)))


class Watch:
    def __init__(self):
        self.seen = []

    def phase(self, name):
        return nullcontext()

    def progress(self, done, total):
        self.seen.append((done, total))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ONNXPORT_CACHE", str(folder))
    return folder / "calibration"


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def model(tmp_path):
    """Two inputs of open sizes; `unused` fails on every sample, so a session that computes it is found out."""
    text = """
    <ir_version: 10, opset_import: ["" : 17]>
    net (float[n, 3, h, w] x, float[1] k) => (float[n, 4, h, w] y, float[7, 7] unused)
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
    initializers = {"weight": weight, "wrong": np.array([7, 7])}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in initializers.items()
    )
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(proto, folder / "net.onnx")
    return folder / "net.onnx"


def ragged(count):
    generator = np.random.default_rng(0)
    return [
        {
            "x": generator.standard_normal((1 + n % 2, 3, 5 + n, 9 + 2 * n), np.float32),
            "k": np.full(1, (1 + n) / 8, np.float32),
        }
        for n in range(count)
    ]


def in_memory(samples):
    return [
        SampleFile(Path(f"{n}.npz"), f"{n}.npz", SPECS, functools.partial(dict, sample))
        for n, sample in enumerate(samples)
    ]


@pytest.fixture
def files(tmp_path):
    """Twelve .npz files."""
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, sample in enumerate(ragged(12)):
        np.savez(folder / f"{number}.npz", **sample)
    return find_samples(folder, SPECS, 12)


def taps():
    return {name: (Histogram(), ChannelMeans(1)) for name in ("x", "r", "y")}
