"""Every element type that ONNX allows an op, at the type's limits: right through TFLite's kernels, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from tests.conformance.harness import Array, Harness, difference
from tests.conformance.tflite import Conformance
from tests.converters.tflite.models import model_of, run_onnx

TYPES = "float64 float32 float16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool".split()
SHAPE = (2, 4, 2, 2)


def values(dtype: np.dtype[Any], *, seed: int = 0) -> Array:
    """32 numbers with the type's limits among them."""
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.integers(0, 2, SHAPE).astype(bool)
    if dtype.kind == "f":
        special = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.0, np.inf, -np.inf]
        numbers = random.normal(0, 3, 32).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        special = [0, 1, 2, 100, limits.max, *([-1, -100, limits.min] if limits.min else [])]
        numbers = random.integers(limits.min // 2, limits.max // 2, 32, dtype=np.int64).astype(dtype)
    numbers[: len(special)] = special
    return random.permutation(numbers).reshape(SHAPE)


def small(dtype: np.dtype[Any]) -> Array:
    """Numbers of which sums and products stay within the type."""
    if dtype.kind in "iu":
        return np.abs(values(dtype) % 3).astype(dtype)
    return np.clip(values(dtype), -9, 9) if dtype.kind == "f" else values(dtype)


def number(array: Any) -> Array:
    return np.asarray(array, np.int64)


# ONNX op -> its operands for a type (the first is fed, the others are constants), attributes.
Operands = Callable[[np.dtype[Any]], list[Array]]
OPS: dict[str, tuple[Operands, dict[str, Any]]] = {
    **dict.fromkeys(
        "Abs Neg Sign Relu Identity IsNaN IsInf NonZero Size Shape Not BitwiseNot".split(),
        (lambda t: [values(t)], {}),
    ),
    **dict.fromkeys(
        "Add Sub Mul Max Min Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Sum "
        "BitwiseAnd BitwiseOr BitwiseXor".split(),
        (lambda t: [values(t), values(t, seed=1)], {}),
    ),
    "ArgMax": (lambda t: [values(t)], {"axis": 1}),
    "ArgMin": (lambda t: [values(t)], {"axis": 2, "select_last_index": 1}),
    "Clip": (lambda t: [values(t), np.array(1, t), np.array(3, t)], {}),
    "Concat": (lambda t: [values(t), values(t, seed=1)], {"axis": 1}),
    "CumSum": (lambda t: [small(t), number(1)], {}),
    "DepthToSpace": (lambda t: [values(t)], {"blocksize": 2}),
    "Div": (lambda t: [values(t), np.where(values(t, seed=1) == 0, np.ones((), t), values(t, seed=1))], {}),
    "Expand": (lambda t: [values(t)[:, :1], number([2, 3, 2, 2])], {}),
    "Gather": (lambda t: [values(t), number([1, -1, 0])], {"axis": 1}),
    "GatherElements": (lambda t: [values(t), np.ones(SHAPE, np.int64)], {"axis": 1}),
    "GatherND": (lambda t: [values(t), number([[0, 1], [1, -1]])], {}),
    "MatMul": (lambda t: [small(t), np.ones((2, 3), t)], {}),
    "MaxPool": (lambda t: [values(t)], {"kernel_shape": [2, 1], "pads": [1, 0, 0, 0]}),
    "Mod": (lambda t: [values(t), np.where(values(t, seed=1) == 0, np.ones((), t), values(t, seed=1))], {}),
    "OneHot": (lambda t: [number([1, -1, 5]), number(4), np.array([0, 1], t)], {}),
    "Pad": (lambda t: [values(t), number([0, 1, 0, 0, 0, 0, 2, 1]), np.array(1, t)], {}),
    "Pow": (lambda t: [small(t), np.array(3, t)], {}),
    "ReduceMax": (lambda t: [values(t), number([1])], {}),
    "ReduceMean": (lambda t: [small(t), number([1])], {}),
    "ReduceMin": (lambda t: [values(t), number([1, 2])], {}),
    "ReduceProd": (lambda t: [small(t), number([2])], {}),
    "ReduceSum": (lambda t: [small(t), number([1])], {}),
    "Reshape": (lambda t: [values(t), number([4, -1])], {}),
    "Resize": (lambda t: [values(t), np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)], {}),
    "ScatterElements": (
        lambda t: [values(t), np.zeros((2, 1, 2, 2), np.int64), np.ones((2, 1, 2, 2), t)],
        {"axis": 1},
    ),
    "ScatterND": (lambda t: [values(t), number([[1]]), np.ones((1, 4, 2, 2), t)], {}),
    "Slice": (lambda t: [values(t), number([0, 1]), number([2, 4]), number([0, 1]), number([1, 2])], {}),
    "SpaceToDepth": (lambda t: [values(t)], {"blocksize": 2}),
    "Split": (lambda t: [values(t), number([1, 3])], {"axis": 1}),
    "Tile": (lambda t: [values(t), number([1, 2, 1, 3])], {}),
    "TopK": (lambda t: [values(t), number([2])], {"axis": 1}),
    "Transpose": (lambda t: [values(t)], {"perm": [0, 3, 1, 2]}),
    "Trilu": (lambda t: [values(t)], {"upper": 0}),
    "Where": (lambda t: [values(np.dtype(bool)), values(t), values(t, seed=1)], {}),
}

# What ONNX Runtime or NumPy answers by accident of its implementation, so that nobody can be held to it.
UNDEFINED = {
    *(("Pow", narrow) for narrow in ("int8", "uint8")),
    *(("Resize", wide) for wide in ("float64", "int64", "uint64")),
}


@pytest.mark.parametrize("op", OPS)
def test_accepted_types_compute_what_onnx_says(conformance: Conformance, op: str) -> None:
    faults = []
    for dtype in map(np.dtype, TYPES):
        if (op, dtype.name) in UNDEFINED:
            continue
        operands, attributes = OPS[op][0](dtype), OPS[op][1]
        faults.append(fault(conformance, op, operands, attributes))
    assert not list(filter(None, faults))


@pytest.mark.parametrize("source", TYPES)
def test_casts_within_the_target_type(conformance: Conformance, source: str) -> None:
    faults = []
    for target in TYPES:
        x = np.array([0, 1, 2, 3, 100], source)
        if np.dtype(source).kind == "f":
            x = np.array([0.4, 0.5, 1.5, 2.9, 100.7, 0.0], source)
        elif np.dtype(source).kind == "i" and np.dtype(target).kind != "u":
            x = np.array([0, -1, -100, 7], source)
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        faults.append(fault(conformance, "Cast", [x], {"to": to}))
    assert not list(filter(None, faults))


def fault(conformance: Harness, op: str, operands: list[Array], attributes: dict[str, Any]) -> str:
    """Return how the op's answer differs; empty if it does not, or where ONNX or we do not take the type."""
    first, *others = operands
    names = [f"c{i}" for i in range(len(others))]
    outputs = [f"y{i}" for i in range(len(attributes_outputs(op)))]
    node = helper.make_node(op, ["x", *names], outputs, op, **attributes)
    constants = [numpy_helper.from_array(array, name) for name, array in zip(names, others, strict=True)]
    feeds = {"x": first}
    try:
        model = model_of([node], feeds, constants)
        onnx.checker.check_model(onnx.load_from_string(model.to_bytes() or b""), full_check=True)
        expected = answer_of(model, feeds)
    except Exception:
        return ""
    try:
        (answer,) = conformance.convert_and_run(model, [feeds])
    except CannotConvertError:
        return ""
    found = [difference(value, answer[name]) for name, value in expected.items()]
    return "".join(f"{op} {operands[-1].dtype} {first.dtype}: {each}" for each in found if each)


def attributes_outputs(op: str) -> range:
    return range({"Split": 2, "TopK": 2}.get(op, 1))


def answer_of(model: Model, feeds: dict[str, Array]) -> dict[str, Array]:
    """ONNX Runtime's answer, or the reference implementation's where ONNX Runtime lacks the type."""
    try:
        return run_onnx(model, feeds)
    except Exception:
        reference = onnx.reference.ReferenceEvaluator(onnx.load_from_string(model.to_bytes() or b""))
        names = [spec.name for spec in model.outputs]
        return dict(zip(names, reference.run(names, feeds), strict=True))
