"""A package of quite another origin: basic-pitch's, which its authors made from TensorFlow."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from fixtures import models
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.mlprogram.evaluator import Evaluator

pytestmark = pytest.mark.real

# The package's outputs in the order of those of the ONNX model.
OUTPUTS = ("Identity_2", "Identity_1", "Identity")


def session(level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return ort.InferenceSession(str(models.path("basic-pitch/nmp.onnx")), options)


def test_equals_its_onnx_model_in_onnx_runtime() -> None:
    """Within 1e-5 of each output's scale, or thrice the distance that ONNX Runtime has to itself without optimization.

    The model takes the logarithm of its spectrum and the smallest of it as zero: an input whose smallest bin is all but
    empty makes 1e-3 of any rounding.
    """
    levels = ort.GraphOptimizationLevel
    usual, plain = session(levels.ORT_ENABLE_ALL), session(levels.ORT_DISABLE_ALL)
    function = read_package(models.folder("basic-pitch/nmp.mlpackage")).functions["main"]
    evaluator = Evaluator(function)
    (name, _), (feed,) = function.inputs[0], usual.get_inputs()
    near = 0
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(-1, 1, (1, 43844, 1)).astype(np.float32)
        expected, other = (each.run(None, {feed.name: x}) for each in (usual, plain))
        found = evaluator.run({name: x})
        for key, wanted, again in zip(OUTPUTS, expected, other, strict=True):
            scale = np.abs(wanted).max()
            error, noise = (np.abs(each - wanted).max() / scale for each in (found[key], again))
            assert error <= max(1e-5, 3 * noise)
            near += error <= 1e-5
    assert near >= 3  # of 12; ONNX Runtime's own kernels decide: 5 were seen with AVX2, 6 and more elsewhere
