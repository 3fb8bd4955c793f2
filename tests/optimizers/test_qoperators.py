"""Operators on quantized tensors, rewritten to floats between Q and DQ, match ONNX Runtime's own kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.conformance.tflite import Conformance
from tests.optimizers.rewritten import Array, model_of, refusal, rewritten, run

RANDOM = np.random.default_rng(0)
X = (np.float32(0.03), np.uint8(120))
Y = (np.float32(0.11), np.uint8(100))
SIGNED = (np.float32(0.02), np.int8(-3))
W = (np.float32(0.01), np.int8(0))


def bytes_(*shape: int, dtype: type = np.uint8) -> Array:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def channels(count: int) -> tuple[Array, Array]:
    return RANDOM.uniform(0.005, 0.02, count).astype(np.float32), np.zeros(count, np.int8)


@dataclass
class Case:
    """A node whose first operand is an input, with scale and zero point in place; the others are constants."""

    op: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"
    fed: int = 0
    dtype: type = np.uint8
    is_int8: str = ""  # the TFLite operator that it becomes, if that computes in int8

    def __str__(self) -> str:
        return f"{self.op} {self.attributes} {self.dtype.__name__}"


BIAS = RANDOM.integers(-3000, 3000, 6).astype(np.int32)
IMAGE = bytes_(2, 4, 7, 7)
KERNEL = bytes_(6, 4, 3, 3, dtype=np.int8)

CASES = [
    Case("QLinearConv", [IMAGE, *X, KERNEL, *W, *Y, BIAS], {"pads": [1, 1, 1, 1]}, "", is_int8="CONV_2D"),
    Case(
        "QLinearConv", [IMAGE, *X, KERNEL, *channels(6), *Y, BIAS], {"strides": [2, 2]}, "", is_int8="CONV_2D"
    ),
    Case(
        "QLinearConv",
        [IMAGE, *X, bytes_(8, 1, 3, 3, dtype=np.int8), *channels(8), *Y],
        {"group": 4},
        "",
        is_int8="DEPTHWISE_CONV_2D",
    ),
    Case("QLinearConv", [IMAGE, *X, bytes_(6, 4, 3, 3), np.float32(0.01), np.uint8(111), *Y], {}, ""),
    Case(
        "QLinearMatMul",
        [bytes_(2, 5, 8), *X, bytes_(8, 6, dtype=np.int8), *W, *Y],
        {},
        "",
        is_int8="FULLY_CONNECTED",
    ),
    Case(
        "QLinearMatMul",
        [bytes_(5, 8, dtype=np.int8), *SIGNED, bytes_(8, 6, dtype=np.int8), *channels(6), *SIGNED],
        {},
        "",
        dtype=np.int8,
        is_int8="FULLY_CONNECTED",
    ),
    Case("QGemm", [bytes_(5, 8), *X, bytes_(8, 6, dtype=np.int8), *W, BIAS, *Y], is_int8="FULLY_CONNECTED"),
    Case(
        "QGemm",
        [bytes_(5, 8), *X, bytes_(6, 8, dtype=np.int8), *channels(6), BIAS, *Y],
        {"transB": 1},
        is_int8="FULLY_CONNECTED",
    ),
    Case("QGemm", [bytes_(5, 8), *X, bytes_(8, 6, dtype=np.int8), *W, BIAS, *Y], {"alpha": 0.5}),
    Case("QGemm", [bytes_(5, 8), *X, bytes_(8, 6, dtype=np.int8), *W], dtype=np.float32),
    Case("QLinearAdd", [bytes_(2, 5, 8), *X, bytes_(8), np.float32(0.05), np.uint8(3), *Y], is_int8="ADD"),
    Case(
        "QLinearMul",
        [bytes_(2, 5, 8, dtype=np.int8), *SIGNED, bytes_(8, dtype=np.int8), *SIGNED, *SIGNED],
        dtype=np.int8,
        is_int8="MUL",
    ),
    Case("QLinearSigmoid", [bytes_(2, 5, 8), *X, np.float32(1 / 255), np.uint8(0)]),
    Case("QLinearLeakyRelu", [bytes_(2, 5, 8), *X, *Y], {"alpha": 0.2}, is_int8="LEAKY_RELU"),
    Case(
        "QLinearSoftmax", [bytes_(2, 5, 8), *X, np.float32(1 / 255), np.uint8(0)], {"axis": -1, "opset": 13}
    ),
    Case("QLinearSoftmax", [bytes_(2, 8), *X, np.float32(1 / 255), np.uint8(0)], {"axis": 1, "opset": 9}),
    Case("QLinearGlobalAveragePool", [IMAGE, *X, *X], {"channels_last": 0}, is_int8="MEAN"),
    Case("QLinearAveragePool", [IMAGE, *X, *X], {"kernel_shape": [2, 2]}),
    Case(
        "QLinearConcat",
        [*Y, bytes_(2, 5), *X, bytes_(2, 3), np.float32(0.2), np.uint8(90)],
        {"axis": 1},
        fed=2,
    ),
    Case("QLinearConcat", [*Y, bytes_(2, 5), *X, bytes_(2, 3), *Y], {"axis": -1}, fed=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rewritten_operator_matches_onnx_runtime(
    case: Case, conformance: Conformance, tmp_path: Path
) -> None:
    names = [f"i{index}" for index in range(len(case.inputs))]
    constants = {name: np.asarray(array) for name, array in zip(names, case.inputs, strict=True)}
    fed = names[case.fed]
    feeds = {fed: constants.pop(fed)}
    node = helper.make_node(case.op, names, ["y"], "node", domain=case.domain, **case.attributes)
    model = model_of(node, feeds, constants, {"y": case.dtype}, is_open=False)
    (expected,) = run(model, feeds)
    ours = rewritten(model)
    assert not refusal(ours)
    (answer,) = run(ours, feeds)
    assert_within_a_step(expected, answer)
    operators = conformance.convert(model, tmp_path / "model.tflite")
    (converted,) = conformance.convert_and_run(model, [feeds])[0].values()
    assert_within_a_step(expected, converted)
    if case.is_int8:
        assert (operators["QUANTIZE"], operators["DEQUANTIZE"]) == (1, 1), operators
        assert case.is_int8 in operators


def assert_within_a_step(expected: Array, answer: Array) -> None:
    assert (answer.dtype, answer.shape) == (expected.dtype, expected.shape)
    away = np.abs(answer.astype(np.float64) - expected.astype(np.float64)).max()
    assert away <= (1 if expected.dtype.kind in "iu" else 1e-4)
