"""Matrix products and convolutions in the forms that the GPU computes right."""

from __future__ import annotations

from math import prod

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.fit.activations import copy
from onnxport.converters.tflite.fit.axes import permute, reshape, with_rank
from onnxport.converters.tflite.fit.movement import expand
from onnxport.converters.tflite.fit.operation import Sizes, TflOp, elements, maker, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder


def batch_matmul(op: TflOp) -> Tensor:
    """Emit a product with one batch axis, the same for both operands, and no constant in front.

    A right side without a batch multiplies all rows of the left at once; else the smaller side is repeated.
    """
    tfl = op.tfl
    left, right = op.operands
    flags = bool(op.attribute("adj_x", False)), bool(op.attribute("adj_y", False))
    if elements(left) is not None and elements(right) is None:
        return _swap_sides(op, flags)
    if left == right:  # a copy would be fused away, and the same tensor twice ends the process
        right = _transpose_matrices(tfl, right)
        flags = flags[0], not flags[1]
    batches = op.out[:-2]
    shapes = [with_rank(sizes(each), len(op.out)) for each in (left, right)]
    wide = [shape[:-2] == batches for shape in shapes]
    if prod(shapes[1][:-2]) == 1 and prod(batches) > 1:
        return _rows_at_once(op, left, right, shapes, flags)
    operands = []
    for each, shape, is_wide in zip((left, right), shapes, wide, strict=True):
        whole = (*batches, *shape[-2:])
        constant = elements(each)
        if is_wide:
            tensor = each
        elif constant is not None:
            tensor = tfl.constant(np.broadcast_to(constant, whole))
        else:
            tensor = expand(tfl, each, whole)
        operands.append(reshape(tfl, tensor, (prod(batches), *shape[-2:])))
    result = _product(op, operands, flags, (prod(batches), *op.out[-2:]))
    return reshape(tfl, result, op.out)


def _product(op: TflOp, operands: list[Tensor], flags: tuple[bool, bool], shape: Sizes) -> Tensor:
    attributes = {"adj_x": flags[0], "adj_y": flags[1], "asymmetric_quantize_inputs": False}
    return op.tfl.op("batch_matmul", operands, shape, **attributes)


def _rows_at_once(
    op: TflOp, left: Tensor, right: Tensor, shapes: list[Sizes], flags: tuple[bool, bool]
) -> Tensor:
    tfl = op.tfl
    if flags[0]:
        left = _transpose_matrices(tfl, reshape(tfl, left, shapes[0]))
    # A batch that only the result has comes from neither: the left side's is the result's.
    left = expand(tfl, left, (*op.out[:-1], sizes(left)[-1]))
    rows = prod(op.out[:-1])
    flat = reshape(tfl, left, (1, rows, sizes(left)[-1]))
    matrix = reshape(tfl, right, shapes[1][-2:] if elements(right) is not None else (1, *shapes[1][-2:]))
    return reshape(tfl, _product(op, [flat, matrix], (False, flags[1]), (1, rows, op.out[-1])), op.out)


def _swap_sides(op: TflOp, flags: tuple[bool, bool]) -> Tensor:
    """Compute (B^T A^T)^T, with the constant A behind."""
    tfl, (left, right) = op.tfl, op.operands
    swapped = (*op.out[:-2], op.out[-1], op.out[-2])
    constant = elements(left)
    assert constant is not None
    if not flags[0]:
        constant = np.swapaxes(constant, -1, -2)
    if not flags[1]:  # adj_x beside a constant is computed wrongly
        right = _transpose_matrices(tfl, right)
    result = _product(op, [right, tfl.constant(constant)], (False, False), swapped)
    return _transpose_matrices(tfl, result)


def _transpose_matrices(tfl: TensorBuilder, tensor: Tensor) -> Tensor:
    """Swap the last two axes."""
    rank = len(sizes(tensor))
    return permute(tfl, tensor, (*range(rank - 2), rank - 1, rank - 2))


def flatten_rows(op: TflOp) -> Tensor:
    """Emit FULLY_CONNECTED of a matrix."""
    depth = sizes(op.operands[1])[-1]
    rows = prod(op.shape) // depth
    flat = reshape(op.tfl, op.x, (rows, depth))
    result = op.again(
        [flat, *op.operands[1:]], (rows, op.out[-1]), without=["keep_num_dims"], keep_num_dims=False
    )
    return reshape(op.tfl, result, op.out)


def groups_of(op: TflOp) -> tuple[int, int, int]:
    """Return how many groups a CONV_2D has, and the channels of each in and out."""
    outputs, *_, depth = sizes(op.operands[1])
    count = op.shape[-1] // depth
    return count, depth, outputs // count


def split_groups(op: TflOp) -> Tensor:
    """Emit a CONV_2D for each group, and CONCATENATION."""
    tfl = op.tfl
    count, depth, outputs = groups_of(op)
    weights, bias = elements(op.operands[1]), elements(op.operands[2])
    assert weights is not None
    parts = []
    for number in range(count):
        source = tfl.slice(op.x, [0, 0, 0, number * depth], [*op.shape[:-1], depth])
        span = slice(number * outputs, (number + 1) * outputs)
        own = op.operands[2] if bias is None else tfl.constant(bias[span])
        parts.append(op.again([source, tfl.constant(weights[span]), own], (*op.out[:-1], outputs)))
    return tfl.concatenate(parts, 3)


def separate(tfl: TensorBuilder, op: TflOp) -> Tensor:
    """Emit the same operation on a copy of its operand, which the GPU does not fuse with the padding before."""
    return op.again([copy(tfl, op.x), *op.operands[1:]], op.out)


def pad_with_infinity(op: TflOp) -> Tensor:
    """Pad half of the operand with the largest number, and double all: the GPU takes no infinite padding."""
    tfl, fill = op.tfl, elements(op.operands[2])
    assert fill is not None
    largest = np.copysign(np.finfo(np.float32).max, fill.item())
    half = tfl.op("mul", [op.x, tfl.constant(0.5, np.float32)], op.shape)
    padded = op.again([half, op.operands[1], tfl.constant(largest, np.float32)], op.out)
    return tfl.op("mul", [padded, tfl.constant(2, np.float32)], op.out)


# The GPU's maxima start at -10000, those of scaled numbers at -1.6e8. In float16 the scaled ones are exact to 2^-11.
_SCALE = 2.0**-14


def is_scaled(tensor: Tensor) -> bool:
    """Return whether `pool_far_below_zero` made this operand."""
    made_by = maker(tensor)
    if made_by is not None and made_by.name == "tfl.padv2":
        made_by = maker(made_by.operands[0])
    if made_by is None or made_by.name != "tfl.leaky_relu":
        return False
    return bool(ir.FloatAttr(made_by.attributes["alpha"]).value == _SCALE)


def is_compared(reader: ir.Operation) -> bool:
    """Return whether `pool_far_below_zero` made this reader of a result."""
    if reader.operation.name != "tfl.minimum":
        return False
    made_by = maker(reader.operation.operands[1])
    if made_by is None or made_by.name != "tfl.mul":
        return False
    factor = elements(made_by.operands[1])
    return factor is not None and factor.size == 1 and factor.item() == 1 / _SCALE


def pool_far_below_zero(op: TflOp) -> Tensor:
    """Compute MAX_POOL_2D twice, the second time with negative numbers scaled; the smaller result is the maximum.

    The first is right above the GPU's lowest number. The second is right below zero, and above it much too large.
    In float16 alone it would lose small negative numbers.
    """
    tfl = op.tfl
    plain = op.again([op.x], op.out)
    padding = maker(op.x)
    if padding is not None and padding.name == "tfl.padv2":
        # Each pool has its own, which the GPU fuses with it.
        source = TflOp(padding, tfl)
        scaled = tfl.op("leaky_relu", [source.x], source.shape, alpha=_SCALE)
        scaled = tfl.op("padv2", [scaled, *source.operands[1:]], op.shape)
    else:
        scaled = tfl.op("leaky_relu", [op.x], op.shape, alpha=_SCALE)
    below = op.again([scaled], op.out)
    below = tfl.op("mul", [below, tfl.constant(1 / _SCALE, np.float32)], op.out)
    return tfl.op("minimum", [plain, below], op.out)
