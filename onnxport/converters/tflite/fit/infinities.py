"""Maxima and SOFTMAX of numbers some of which are infinite, as a mask of -inf makes them.

The GPU's REDUCE_MAX gives -inf where one of its numbers is, SOFTMAX of five and more NaN where the first is, and
TOPK_V2 finds none of them. So each is computed on halves, with a number below all halves in the place of -inf, and
doubled: that is exact.
"""

from __future__ import annotations

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.fit.operation import TflOp, elements, is_constant, is_tensor, maker, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder

_LARGEST = float(np.finfo(np.float32).max)
_BELOW = -0.75 * _LARGEST  # below every half, above what a GPU's maxima start with; doubled it is -inf
_NAN_TESTS = ("tfl.equal", "tfl.not_equal")
# Their results are finite, or not by an infinity that passes through.
_ENDS = frozenset(
    (
        "batch_matmul conv_2d depthwise_conv_2d fully_connected transpose_conv softmax log_softmax logistic tanh "
        "relu6 relu_n1_to_1 equal not_equal greater greater_equal less less_equal arg_max cast exp"
    ).split()
)


def may_be_infinite(tensor: Tensor) -> bool:
    """Return whether an infinite constant may reach a tensor. What is fed is taken as finite."""
    waiting, seen = [tensor], set[Tensor]()
    while waiting:
        current = waiting.pop()
        if current in seen or not is_tensor(current):
            continue
        seen.add(current)
        made_by = maker(current)
        if made_by is None:
            continue
        constant = elements(current)
        if constant is not None:
            if constant.dtype.kind == "f" and np.isinf(constant).any():
                return True
            continue
        name = made_by.name.removeprefix("tfl.")
        if name in _ENDS:
            continue
        bounds = list(filter(is_constant, made_by.operands)) if name in ("maximum", "minimum") else []
        if not bounds:
            waiting += made_by.operands
        elif not all(map(_is_finite, bounds)):  # a copy: what is infinite stays so
            waiting += [each for each in made_by.operands if not is_constant(each)]
    return False


def _is_finite(tensor: Tensor) -> bool:
    found = elements(tensor)
    return found is not None and bool(np.isfinite(found).all())


def bound_halves(tfl: TensorBuilder, tensor: Tensor, *, below: bool = True) -> Tensor:
    """Return the halves of a tensor, with a finite number beyond all of them for -inf, or for inf."""
    half = tfl.op("mul", [tensor, tfl.constant(0.5, np.float32)], sizes(tensor))
    bound = tfl.constant(_BELOW if below else -_BELOW, np.float32)
    return tfl.op("maximum" if below else "minimum", [half, bound], sizes(tensor))


def reduce(op: TflOp) -> Tensor:
    """Compute REDUCE_MAX, or REDUCE_MIN, of halves, and double it."""
    bounded = bound_halves(op.tfl, op.x, below=op.name == "reduce_max")
    return _double(op.tfl, op.again([bounded, *op.operands[1:]], op.out))


def arg_max(op: TflOp) -> Tensor:
    """Find the place of the largest half."""
    return op.again([bound_halves(op.tfl, op.x), *op.operands[1:]], op.out)


def topk(op: TflOp) -> list[Tensor]:
    """Find the largest halves, and double them."""
    tfl = op.tfl
    results = [(op.out, op.dtype), (op.out, np.dtype(np.int32))]
    values, places = tfl.ops("topk_v2", [bound_halves(tfl, op.x), op.operands[1]], results)
    return [_double(tfl, values), places]


def _double(tfl: TensorBuilder, tensor: Tensor) -> Tensor:
    return tfl.op("mul", [tensor, tfl.constant(2, np.float32)], sizes(tensor))


def has_nan_test(op: TflOp) -> bool:
    """Return whether something compares the result with itself, which finds the rows of -inf alone."""
    return bool(_nan_tests(op))


def _nan_tests(op: TflOp) -> list[ir.Operation]:
    readers = [use.owner.operation for use in op.operation.results[0].uses]
    return [each for each in readers if each.name in _NAN_TESTS and each.operands[0] == each.operands[1]]


def softmax(op: TflOp) -> Tensor:
    """Compute SOFTMAX with the lowest number for -inf, and NaN in rows of nothing else.

    A comparison of the result with itself becomes one of the row's maximum, since a GPU's NaN may equal itself; with
    it the NaN are left out where only a choice reads them.
    """
    tfl, tests = op.tfl, _nan_tests(op)
    kept = (*op.out[:-1], 1)
    halves = bound_halves(tfl, op.x)
    peak = tfl.op("reduce_max", [halves, tfl.int32([len(op.out) - 1])], kept, keep_dims=True)
    if tests:
        # To full size by a maximum, which XNNPACK computes.
        rows = tfl.op("maximum", [halves, peak], op.out)
        flags = tfl.op("equal", [rows, tfl.constant(_BELOW, np.float32)], op.out, bool)
        for test in tests:
            found = flags if test.name == "tfl.not_equal" else tfl.op("logical_not", [flags], op.out, bool)
            test.results[0].replace_all_uses_with(found)
    lowest = tfl.constant(-_LARGEST, np.float32)
    result = op.again([tfl.op("maximum", [op.x, lowest], op.out)], op.out)
    readers = {use.owner.operation.name for use in op.operation.results[0].uses}
    if tests and readers <= {*_NAN_TESTS, "tfl.select_v2"}:
        return result
    zero_or_nan = tfl.op("mul", [_double(tfl, peak), tfl.constant(0, np.float32)], kept)
    return tfl.op("add", [result, zero_or_nan], op.out)
