"""Arithmetic, comparisons, choices and reductions on at most four axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxport.converters.tflite.fit.axes import (
    MOST,
    around,
    as_rows,
    group_sizes,
    merge_axes,
    reshape,
    with_rank,
)
from onnxport.converters.tflite.fit.movement import as_integers, expand, require, reverse_along
from onnxport.converters.tflite.fit.operation import TflOp, elements, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder

_LOWEST = -3e38  # below every score; -inf would give NaN in products with 0


def merge_broadcast(op: TflOp) -> Tensor:
    """Emit the same operation with axes merged in which each operand has all elements or one.

    Behind a first axis of size 1 if at most three are left; else all but one operand are repeated in full.
    """
    tfl, out = op.tfl, op.out
    shapes = [with_rank(sizes(each), len(out)) for each in op.operands]
    patterns = [tuple(shape[axis] == out[axis] for shape in shapes) for axis in range(len(out))]
    groups = merge_axes(out, patterns)
    if len(groups) < MOST or (len(groups) == MOST and len(out) > MOST):
        flat = with_rank(group_sizes(out, groups))
        operands = []
        for each, shape in zip(op.operands, shapes, strict=True):
            if prod(shape) == 1:
                operands.append(reshape(tfl, each, () if elements(each) is not None else (1,) * MOST))
            else:
                operands.append(reshape(tfl, each, with_rank(group_sizes(shape, groups))))
        return reshape(tfl, op.again(operands, flat), out)
    return repeat_operands(op)


def repeat_operands(op: TflOp) -> Tensor:
    """Emit the same operation on operands in the result's full shape, merged to four axes where there are more."""
    tfl, out = op.tfl, op.out
    flat = out if len(out) <= MOST else as_rows(out)
    operands = []
    for each in op.operands:
        constant = elements(each)
        if constant is not None and constant.size == 1:
            operands.append(tfl.constant(constant.reshape(())))
        elif constant is not None:
            operands.append(tfl.constant(np.broadcast_to(constant, out).reshape(flat)))
        else:
            operands.append(reshape(tfl, expand(tfl, each, out), flat))
    return reshape(tfl, op.again(operands, flat), out)


def flatten_unary(op: TflOp) -> Tensor:
    """Emit the same operation with the leading axes merged."""
    flat = as_rows(op.shape)
    operands = [reshape(op.tfl, op.x, flat), *op.operands[1:]]
    return reshape(op.tfl, op.again(operands, flat), op.out)


# ---- along one axis


def reduce(op: TflOp) -> Tensor:
    """Reduce merged axes; one group after another where more than four are left."""
    tfl = op.tfl
    axes = {axis % len(op.shape) for axis in np.atleast_1d(require(op, 1)).tolist()}
    groups = merge_axes(op.shape, [axis in axes for axis in range(len(op.shape))])
    flat = list(group_sizes(op.shape, groups))
    reduced = [number for number, g in enumerate(groups) if any(a in axes and op.shape[a] > 1 for a in g)]
    tensor = op.x
    for step in [reduced] if len(flat) <= MOST else [[number] for number in reduced]:
        operand = tuple(flat)
        for number in step:
            flat[number] = 1
        if len(operand) > MOST:
            (number,) = step
            operand = around(operand, number)
            kept, places = (*operand[:2], 1, operand[3]), [2]
        else:
            kept, places = tuple(flat), step
        tensor = tfl.op(op.name, [reshape(tfl, tensor, operand), tfl.int32(places)], kept, keep_dims=True)
    return reshape(tfl, tensor, op.out)


def mean_as_sum(op: TflOp) -> Tensor:
    """Divide a SUM by the number of its elements."""
    tfl, share = op.tfl, prod(op.out) / prod(op.shape)
    total = tfl.op("sum", op.operands, op.out, keep_dims=bool(op.attribute("keep_dims")))
    return tfl.op("mul", [total, tfl.constant(share, np.float32)], op.out)


def arg_max(op: TflOp) -> Tensor:
    """Compute ARG_MAX along the third of four axes."""
    return _arg_max(op, op.x)


def arg_min(op: TflOp) -> Tensor:
    """Compute ARG_MAX of the negative."""
    return _arg_max(op, op.tfl.op("neg", [op.x], op.shape))


def _arg_max(op: TflOp, tensor: Tensor) -> Tensor:
    tfl, axis = op.tfl, int(require(op, 1)) % len(op.shape)
    flat = around(op.shape, axis)
    result = tfl.op(
        "arg_max",
        [reshape(tfl, tensor, flat), tfl.int32(2)],
        (*flat[:2], flat[3]),
        op.dtype,
        output_type=tfl.type_attribute(op.dtype),
    )
    return reshape(tfl, result, op.out)


def topk(op: TflOp) -> list[Tensor]:
    """Compute TOPK_V2 of rows with lowest numbers behind them, up to a multiple of four."""
    tfl, size = op.tfl, op.shape[-1]
    missing = -size % 4
    rows = prod(op.shape[:-1])
    flat = (1, 1, rows, size)
    lowest = _LOWEST if op.dtype.kind == "f" else -(2**24)
    tail = tfl.constant(np.full((1, 1, rows, missing), lowest, op.dtype))
    source = tfl.concatenate([reshape(tfl, op.x, flat), tail], 3)
    count = op.out[-1]
    shape = (1, 1, rows, count)
    results = [(shape, op.dtype), (shape, np.dtype(np.int32))]
    found = tfl.ops("topk_v2", [source, op.operands[1]], results)
    return [reshape(tfl, each, op.out) for each in found]


def cumsum_of_floats(op: TflOp) -> Tensor:
    """Emit CUMSUM of integers in float32, in which the GPU computes them anyway."""
    tfl = op.tfl
    numbers = tfl.op("cast", [op.x], op.shape, np.float32)
    total = tfl.op("cumsum", [numbers, *op.operands[1:]], op.out, **op.attributes())
    return tfl.op("cast", [total], op.out, np.int32)


def logic_of_integers(op: TflOp) -> Tensor:
    """Emit LOGICAL_AND as MINIMUM of int32, LOGICAL_OR as MAXIMUM."""
    tfl = op.tfl
    name = "minimum" if op.name == "logical_and" else "maximum"
    found = tfl.op(name, [as_integers(tfl, each) for each in op.operands], op.out)
    return tfl.op("cast", [found], op.out, bool)


def compare_integers(op: TflOp) -> Tensor:
    """Compare flags as int32."""
    return op.again([as_integers(op.tfl, each) for each in op.operands], op.out)


def cumsum(op: TflOp) -> Tensor:
    """Compute CUMSUM along the third of four axes; in reverse between two REVERSE_V2, exclusive less the operand."""
    tfl, axis = op.tfl, int(require(op, 1)) % len(op.shape)
    flat = around(op.shape, axis)
    source = reshape(tfl, op.x, flat)
    tensor = reverse_along(tfl, source, 2) if op.attribute("reverse") else source
    tensor = tfl.op("cumsum", [tensor, tfl.int32(2)], flat, exclusive=False, reverse=False)
    if op.attribute("reverse"):
        tensor = reverse_along(tfl, tensor, 2)
    if op.attribute("exclusive"):
        tensor = tfl.op("sub", [tensor, source], flat)
    return reshape(tfl, tensor, op.out)


# ---- choices


def select(op: TflOp) -> Tensor:
    """Emit SELECT_V2 with the condition in few axes, and constants alone or in full."""
    tfl, out = op.tfl, op.out
    flat = out if len(out) == MOST else as_rows(out)
    operands = []
    for place, each in enumerate(op.operands):
        constant = elements(each)
        if prod(sizes(each)) == 1 and (constant is None and place == 0):
            operands.append(reshape(tfl, each, (1,) * MOST))
        elif constant is not None and constant.size == 1 and place:
            operands.append(tfl.constant(constant.reshape(())))
        elif constant is not None:
            operands.append(tfl.constant(np.broadcast_to(constant, out).reshape(flat)))
        else:
            operands.append(reshape(tfl, expand(tfl, each, out), flat))
    return reshape(tfl, tfl.op("select_v2", operands, flat), out)


def select_by_product(tfl: TensorBuilder, condition: Tensor, operands: Sequence[Tensor]) -> Tensor:
    """Return one of two tensors of the same shape by a condition of one element."""
    shape = sizes(operands[0])
    dtype = tfl.dtype_of(operands[0])
    flags = reshape(tfl, condition, (1,) * MOST)
    flat = as_rows(shape)
    if dtype.kind == "b":
        first, second = (reshape(tfl, each, flat) for each in operands)
        other = tfl.op("logical_not", [flags], (1,) * MOST)
        left = tfl.op("logical_and", [first, flags], flat)
        right = tfl.op("logical_and", [second, other], flat)
        return reshape(tfl, tfl.op("logical_or", [left, right], flat), shape)
    chosen = tfl.op("select_v2", [flags, *(reshape(tfl, each, flat) for each in operands)], flat)
    return reshape(tfl, chosen, shape)
