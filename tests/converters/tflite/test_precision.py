"""Functions that TFLite lacks, built from others: as near to the true value as float32 allows, small values too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from tests.conformance.tflite import Array, Conformance
from tests.converters.tflite.models import model_of, run_onnx

Exact = Callable[[Array], Array]

EVERYWHERE = np.concatenate(
    [np.linspace(-20, 20, 4001), np.logspace(-7, 1.9, 400), -np.logspace(-7, 1.9, 400), [0.0, 88.9, -88.9]]
).astype(np.float32)
WITHIN_ONE = np.concatenate([np.linspace(-1, 1, 2001), np.logspace(-7, -1, 200)]).astype(np.float32)
FROM_ONE = np.concatenate([1 + np.logspace(-6, 8, 800), [1.0, 1e30]]).astype(np.float32)

# ONNX op -> its arguments, its exact value, the largest relative error, or absolute error below 1.
FUNCTIONS: dict[str, tuple[Array, Exact, float]] = {
    "Acos": (WITHIN_ONE, np.arccos, 1e-6),
    "Acosh": (FROM_ONE, np.arccosh, 2e-6),
    "Asin": (WITHIN_ONE, np.arcsin, 1e-6),
    "Asinh": (np.concatenate([EVERYWHERE, np.float32([1e10, -3e37])]), np.arcsinh, 2e-6),
    "Atan": (np.concatenate([EVERYWHERE, np.float32([np.inf, -np.inf])]), np.arctan, 1e-6),
    "Atanh": (WITHIN_ONE[np.abs(WITHIN_ONE) < 1], np.arctanh, 2e-6),
    "Cosh": (EVERYWHERE, np.cosh, 1e-5),
    "Erf": (EVERYWHERE, np.vectorize(math.erf), 2e-6),
    "Mish": (EVERYWHERE, lambda x: x * np.tanh(np.logaddexp(0, x)), 2e-5),
    "Sinh": (EVERYWHERE, np.sinh, 1e-5),
    "Softplus": (EVERYWHERE, lambda x: np.logaddexp(0, x), 2e-5),
    "Tan": (np.linspace(-1.5, 1.5, 1001).astype(np.float32), np.tan, 1e-5),
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_relative_error_is_small_where_the_value_is(conformance: Conformance, op: str) -> None:
    x, exact, bound = FUNCTIONS[op]
    (answer,) = conformance.convert_and_run(
        model_of([helper.make_node(op, ["x"], ["y"])], {"x": x}), [{"x": x}]
    )
    expected = exact(x.astype(np.float64))
    with np.errstate(over="ignore"):
        assert np.array_equal(np.isfinite(answer["y"]), np.isfinite(expected.astype(np.float32)))
    finite = np.isfinite(answer["y"]) & (np.abs(expected) > 1e-30)
    error = np.abs(answer["y"][finite] / expected[finite] - 1)
    assert error.max() <= bound, f"{error.max():.1e} at {x[finite][error.argmax()]}"


@pytest.mark.parametrize("op", ["Erf", "Gelu", "Sigmoid", "Tanh", "HardSwish", "Elu", "Softsign"])
def test_activations_are_within_float_noise_of_onnx_runtime(conformance: Conformance, op: str) -> None:
    x = np.linspace(-9, 9, 3001).astype(np.float32)
    model = model_of([helper.make_node(op, ["x"], ["y"])], {"x": x})
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    expected = run_onnx(model, {"x": x})["y"]
    assert np.abs(answer["y"] - expected).max() < 5e-7 * max(1.0, float(np.abs(expected).max()))


def test_log_sum_exp_of_large_values_does_not_overflow(conformance: Conformance) -> None:
    x = np.array([[1000, 999, -1000], [-1000, -1001, -999], [-np.inf, 0, 0]], np.float32)
    axes = np.array([1], np.int64)
    nodes = [helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)]
    constants = [helper.make_tensor("axes", 7, [1], axes)]
    (answer,) = conformance.convert_and_run(model_of(nodes, {"x": x}, constants), [{"x": x}])
    assert np.allclose(answer["y"], np.logaddexp.reduce(x.astype(np.float64), axis=1), rtol=1e-6)


def test_softmax_of_large_values_does_not_overflow(conformance: Conformance) -> None:
    x = np.array([[1e4, 9e3, -1e4], [-np.inf, 88, 89]], np.float32)
    model = model_of([helper.make_node("Softmax", ["x"], ["y"])], {"x": x})
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert np.allclose(answer["y"], run_onnx(model, {"x": x})["y"], atol=1e-6)


@pytest.mark.parametrize("op", ["Acos", "Acosh", "Asin", "Atanh", "Log", "Sqrt"])
def test_there_is_no_number_outside_the_domain(conformance: Conformance, op: str) -> None:
    """NaN itself is left out: on a CPU with AVX2 alone XNNPACK takes its logarithm for 88.8, on others for NaN."""
    x = np.array([-1e10, -100, -1.5, -0.5, 0.5, 1.5, 100, 1e10], np.float32)
    model = model_of([helper.make_node(op, ["x"], ["y"])], {"x": x})
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert np.array_equal(np.isnan(answer["y"]), np.isnan(run_onnx(model, {"x": x})["y"]))
