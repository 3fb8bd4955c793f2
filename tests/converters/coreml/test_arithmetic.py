"""Where MIL's operators differ from ONNX's: epsilons, ties, rounding, signs, limits of types; against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxport.core.errors import CannotConvertError, UsageError
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array, difference
from tests.converters.coreml.packages import convert, evaluate
from tests.converters.tflite.models import model_of, run_onnx

TINY = np.array([1e-30, 1e-6, 1e-4, 0.5, 3.0], np.float32)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
TIES = np.array([[1, 3, 3, 0], [2, 2, 2, 2]], np.float32)
INT8 = np.array([-128, -127, -1, 0, 1, 127], np.int8)
UINT16 = np.array([0, 1, 255, 256, 65534, 65535], np.uint16)
INT32 = np.array([-(2**31), -(2**24) - 1, -7, 7, 2**24 + 1, 2**31 - 1], np.int32)
MASK = np.array([[True, False, True], [False, False, True]])

# What is proven -> ONNX op, operands, attributes.
CASES: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "log adds no epsilon": ("Log", [TINY], {}),
    "log of 0": ("Log", [np.zeros(2, np.float32)], {}),
    "reciprocal adds no epsilon": ("Reciprocal", [TINY], {}),
    "halves are rounded to even": ("Round", [HALVES], {}),
    "softplus does not overflow": ("Softplus", [np.array([-100, 0, 50, 1000], np.float32)], {}),
    "mish does not overflow": ("Mish", [np.array([-100, 0, 50, 1000], np.float32)], {}),
    "the root of a negative number is none": ("Sqrt", [np.array([-1.0, 4.0], np.float32)], {}),
    "asinh of all sizes": ("Asinh", [np.array([1e-6, -0.3, 0.6, 1e3, -1e30], np.float32)], {}),
    "acosh near 1 and far from it": ("Acosh", [np.array([1, 1.00001, 1.9, 2.1, 1e30], np.float32)], {}),
    "the threshold itself does not pass": ("ThresholdedRelu", [TIES], {"alpha": 2.0}),
    "the first of equals": ("ArgMax", [TIES], {"axis": 1}),
    "the last of equals": ("ArgMin", [TIES[:, ::-1].copy()], {"axis": 1, "select_last_index": 1}),
    "bounds that are equal": ("Clip", [TIES, np.float32(2), np.float32(2)], {}),
    "bounds that cross": ("Clip", [TIES, np.float32(3), np.float32(1)], {}),
    "a condition larger than both": ("Where", [MASK, np.float32(-np.inf), np.zeros(1, np.float32)], {}),
    "a condition larger than both, integers": ("Where", [MASK, np.int64(5), np.array([7])], {}),
    "log sum exp of large numbers": (
        "ReduceLogSumExp",
        [np.array([[1000, 999], [-1000, -999]], np.float32)],
        {},
    ),
    "log sum exp of nothing": ("ReduceLogSumExp", [np.full((1, 3), -np.inf, np.float32)], {}),
    "the lowest of 8 bits": ("Neg", [INT8], {}),
    "the size of the lowest": ("Abs", [INT8], {}),
    "sums of 8 bits wrap": ("Add", [INT8, INT8], {}),
    "products of 8 bits wrap": ("Mul", [INT8, np.int8(-128)], {}),
    "products of 16 bits wrap": ("Mul", [UINT16[:, None], UINT16], {}),
    "differences of 16 bits wrap": ("Sub", [UINT16[:, None], UINT16], {}),
    "sums beyond 2^24 are exact": ("Add", [INT32, np.int32(1)], {}),
    "sums over an axis beyond 2^24 are exact": ("ReduceSum", [INT32[1:-1].reshape(2, 2), np.array([1])], {}),
    "extremes beyond 2^24 are exact": ("ReduceMax", [INT32, np.array([0])], {}),
    "quotients go toward 0": ("Div", [INT32, np.int32(-3)], {}),
    "quotients of small divisors": ("Div", [INT32[1:, None], INT32[1:]], {}),
    "rests have the divisor's sign": ("Mod", [INT32[1:, None], INT32[1:]], {}),
    "rests have the dividend's sign": ("Mod", [INT32[1:, None], INT32[1:]], {"fmod": 1}),
    "rests of floats": ("Mod", [HALVES[:, None], np.array([2, -2, 0.75], np.float32)], {"fmod": 1}),
    "powers of integers": ("Pow", [np.array([-3, 2, 7, -1], np.int64), np.array([19, 30, 11, -7])], {}),
    "powers of integers by floats": (
        "Pow",
        [np.array([9, 2, 7], np.int32), np.array([1, 3, 2], np.float32)],
        {},
    ),
    "bits of negative numbers": ("BitwiseAnd", [INT32[:, None], INT32], {}),
    "bits of two signs": ("BitwiseXor", [INT32[:, None], INT32], {}),
    "bits of 16 bits": ("BitwiseOr", [UINT16[:, None], UINT16], {}),
    "bits are flipped": ("BitwiseNot", [UINT16], {}),
    "shifts drop bits": (
        "BitShift",
        [UINT16.astype(np.uint8)[:, None], np.array([0, 1, 7, 8], np.uint8)],
        {"direction": "LEFT"},
    ),
    "casts wrap": ("Cast", [INT32], {"to": TensorProto.INT8}),
    "casts cut off": ("Cast", [HALVES], {"to": TensorProto.INT32}),
    "a fraction is true": ("Cast", [HALVES * 0.1], {"to": TensorProto.BOOL}),
    "integers beyond 2^24 are divided as such": ("Div", [INT32, np.int32(2)], {}),
    "infinite and no numbers": (
        "IsInf",
        [np.array([np.inf, -np.inf, np.nan, 1], np.float32)],
        {"detect_negative": 0},
    ),
}


def _nodes(
    op: str, operands: Sequence[str], result: str, attributes: dict[str, Any], dtype: Any
) -> list[NodeProto]:
    """The operator; of narrow integers what comes next as well, since an output is cut to its type outside Core ML."""
    node = helper.make_node(op, operands, [result], **attributes)
    if dtype.kind not in "iu" or (dtype.itemsize > 2 and op != "Cast"):
        return [node]
    node.output[0] = f"{result}_narrow"
    return [node, helper.make_node("Cast", [node.output[0]], [result], to=TensorProto.FLOAT)]


def _model(name: str, *, bound: bool) -> tuple[Any, dict[str, Array]]:
    op, operands, attributes = CASES[name]
    feeds = {f"x{i}": np.asarray(each) for i, each in enumerate(operands)}
    nodes = _nodes(op, list(feeds), "y", attributes, feeds["x0"].dtype)
    constants = [numpy_helper.from_array(feeds.pop(each), each) for each in list(feeds)[1:]] if bound else []
    return model_of(nodes, feeds, constants), feeds


@pytest.mark.parametrize("bound", [False, True], ids=["fed", "bound"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_onnx_runtimes(coreml: CoremlConformance, name: str, bound: bool) -> None:
    model, feeds = _model(name, bound=bound)
    (answer,) = coreml.convert_and_run(model, [feeds])
    assert difference(run_onnx(model, feeds)["y"], answer["y"]) == ""


@pytest.mark.parametrize("zeros", [(-0.0, 0.0), (0.0, -0.0)])
def test_a_condition_larger_than_both_keeps_signs_of_zeros(
    zeros: tuple[float, float], coreml: CoremlConformance
) -> None:
    feeds = {"mask": MASK}
    choices = [
        numpy_helper.from_array(np.float32([each]), name) for name, each in zip("ab", zeros, strict=True)
    ]
    model = model_of([helper.make_node("Where", ["mask", "a", "b"], ["y"])], feeds, choices)
    (answer,) = coreml.convert_and_run(model, [feeds])
    # ONNX Runtime adds two selections, so that it loses the sign of -0.0.
    assert np.array_equal(np.signbit(answer["y"]), np.signbit(np.where(MASK, *zeros)))


def test_an_infinity_that_nothing_reads_may_be_cast(coreml: CoremlConformance) -> None:
    """Positions of T5: the logarithm of a distance of 0 is cast to an integer, and another one chosen."""
    feeds = {"x": np.array([0, 1, 8, 64], np.float32)}
    numbers = {"scale": np.float32(3), "least": np.float32(0.5), "near": np.int64(-1)}
    nodes = [
        helper.make_node("Log", ["x"], ["log"]),
        helper.make_node("Mul", ["log", "scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["place"], to=TensorProto.INT64),
        helper.make_node("Greater", ["x", "least"], ["is_far"]),
        helper.make_node("Where", ["is_far", "place", "near"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()]
    (answer,) = coreml.convert_and_run(model_of(nodes, feeds, initializers), [feeds])
    assert answer["y"].tolist() == [-1, 0, 6, 12]


@pytest.mark.parametrize("target", ["iOS15", "iOS16", "iOS18"])
def test_older_and_newer_targets_say_the_same(target: str, tmp_path: Path) -> None:
    nodes: list[NodeProto] = []
    feeds: dict[str, Array] = {}
    for number, (op, operands, attributes) in enumerate(CASES.values()):
        names = [f"x{number}_{i}" for i in range(len(operands))]
        nodes += _nodes(op, names, f"y{number}", attributes, np.asarray(operands[0]).dtype)
        feeds |= {name: np.asarray(each) for name, each in zip(names, operands, strict=True)}
    model = model_of(nodes, feeds, outputs=[f"y{number}" for number in range(len(CASES))])
    convert(model, tmp_path / "m.mlpackage", minimum_target=target)
    answer, expected = evaluate(tmp_path / "m.mlpackage", feeds), run_onnx(model, feeds)
    assert {name: fault for name in expected if (fault := difference(expected[name], answer[name]))} == {}


REFUSED: dict[str, tuple[str, list[Array], dict[str, Any], str]] = {
    "division by 0": ("Div", [INT32, np.array(0, np.int32)], {}, "divides integers by zero"),
    "flipped bits beyond 32": ("BitwiseNot", [np.ones(2, np.uint32)], {}, "beyond the 32 bits"),
    "a constant beyond 32 bits": ("Add", [np.ones(2, np.int64), np.array(2**40)], {}, "1099511627776"),
    "float8": ("Cast", [TINY], {"to": TensorProto.FLOAT8E4M3FN}, "float8_e4m3fn"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_refused(name: str, tmp_path: Path) -> None:
    op, (first, *others), attributes, why = REFUSED[name]
    constants = [numpy_helper.from_array(each, f"c{i}") for i, each in enumerate(others)]
    node = helper.make_node(op, ["x", *(each.name for each in constants)], ["y"], **attributes)
    model = model_of([node], {"x": first}, constants)
    with pytest.raises(CannotConvertError) as error:
        convert(model, tmp_path / "m.mlpackage")
    assert why in str(error.value)


def test_feeds_beyond_float32_are_refused(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": np.ones(2)})
    convert(model, tmp_path / "m.mlpackage")
    with pytest.raises(UsageError, match="values beyond"):
        evaluate(tmp_path / "m.mlpackage", {"x": np.array([1e300, 1.0])})
