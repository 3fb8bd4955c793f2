"""The rules of LiteRT's GPU runtime: what it takes, and what stands for the rest.

Measured with ai-edge-litert 2.3.0 on SwiftShader, each operation alone against the CPU's kernels (docs/guide/gpu.md).
Tensors lie as [batch, height, width, channels] there. A tensor of fewer axes has its first as the batch, so that
operations along an axis read it wrongly, and a batch above 1 is hardly implemented. Four axes with a batch of 1 are
right everywhere, and RESHAPE is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.fit import (
    activations,
    arithmetic,
    gathers,
    infinities,
    movement,
    powers,
    products,
)
from onnxport.converters.tflite.fit.activations import copy
from onnxport.converters.tflite.fit.axes import MOST, with_rank
from onnxport.converters.tflite.fit.operation import TflOp, elements, is_constant, is_tensor, maker, sizes
from onnxport.converters.tflite.tensors import Tensor

Condition = Callable[[TflOp], bool]
Rewrite = Callable[[TflOp], Tensor | Sequence[Tensor]]


@dataclass(frozen=True)
class Rule:
    """A rewriting of an operation, and the condition under which it applies."""

    holds: Condition
    rewrite: Rewrite


# What it takes without a rule.
TAKEN = frozenset(
    (
        "abs add arg_max atan2 average_pool_2d batch_matmul cast ceil concatenation conv_2d cos cumsum "
        "depth_to_space depthwise_conv_2d dequantize div elu embedding_lookup equal exp floor floor_div floor_mod "
        "fully_connected gather gelu greater greater_equal hard_swish leaky_relu less less_equal log logical_and "
        "logical_not logical_or logistic max_pool_2d maximum mean minimum mirror_pad mul neg not_equal one_hot pack "
        "pad padv2 pow prelu quantize reduce_max reduce_min reduce_prod relu relu6 relu_n1_to_1 reshape "
        "resize_bilinear resize_nearest_neighbor reverse_v2 round rsqrt select_v2 sign sin slice softmax "
        "space_to_depth split split_v sqrt square squared_difference strided_slice sub sum tanh tile topk_v2 "
        "transpose transpose_conv unpack"
    ).split()
)
# Element types of tensors, beside quantized ones. int64 becomes int32.
DTYPES = frozenset("float32 float16 int32 int8 uint8 bool".split())

_LOWEST = -3e38  # padding below this is lower than every number that a pool meets


# ---- conditions


def _always(op: TflOp) -> bool:
    return True


def _is_deep(op: TflOp) -> bool:
    """Return whether a tensor has more axes than the GPU's."""
    return any(len(sizes(each)) > MOST for each in (*op.operands, *op.operation.results) if is_tensor(each))


def _is_flag(op: TflOp) -> bool:
    return op.dtype == bool


def _has(name: str, *values: object) -> Condition:
    return lambda op: op.attribute(name) in values


def _is_constant(place: int) -> Condition:
    return lambda op: len(op.operands) > place and is_constant(op.operands[place])


def _joins(op: TflOp) -> bool:
    """Return whether it reshapes the result of another RESHAPE, or a constant, or nothing."""
    made_by = maker(op.x)
    return op.shape == op.out or (
        made_by is not None and (made_by.name == "tfl.reshape" or is_constant(op.x))
    )


def _batches_a_constant(op: TflOp) -> bool:
    """Return whether a constant has elements along the batch: the GPU reads those of the first image only."""
    constants = (each for each in op.operands if is_constant(each) and prod(sizes(each)) > 1)
    return any(with_rank(sizes(each), len(op.out))[0] > 1 for each in constants)


def _is_scalar(op: TflOp) -> bool:
    """Return whether a computed operand has no axis."""
    return any(not sizes(each) and not is_constant(each) for each in op.operands)


def _is_given(op: TflOp) -> bool:
    """Return whether a result is an output and is read inside, too: a fused normalization does not write it."""
    readers = [use.owner.operation.name for use in op.operation.results[0].uses]
    return "func.return" in readers and len(readers) > 1


def _pads_batch(op: TflOp) -> bool:
    """Return whether padding is written for other axes than height, width and channels."""
    amounts = op.constant(1)
    if amounts is None:
        return False
    return len(op.shape) != MOST or bool(amounts[0].any())


def _mirrors_more(op: TflOp) -> bool:
    return op.is_constant(1) and ("SYMMETRIC" in op.attribute("mode") or _pads_batch(op))


def _slices_otherwise(op: TflOp) -> bool:
    """Return whether STRIDED_SLICE drops or adds axes, goes backwards, or has more than four axes."""
    if not op.is_constant(1, 2, 3):
        return False
    steps = op.constant(3)
    masks = any(op.attribute(name, 0) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"))
    return masks or _is_deep(op) or (steps is not None and bool((steps < 0).any()))


def _index_is_not_a_row(op: TflOp) -> bool:
    return len(sizes(op.operands[1])) != 1 or _is_deep(op)


def _is_narrow(op: TflOp) -> bool:
    """Return whether ARG_MAX runs along fewer than four channels, or has fewer than four axes."""
    axis = op.constant(1)
    if axis is None:
        return False
    place, rank = int(axis) % len(op.shape), len(op.shape)
    return rank != MOST or place == 0 or (place == MOST - 1 and op.shape[-1] < MOST)


def _slope_does_not_fit(op: TflOp) -> bool:
    alpha = op.constant(1)
    if alpha is None or alpha.size == 1 or _is_deep(op):
        return True
    return prod(alpha.shape) != op.shape[-1] and not (
        len(op.shape) == MOST and alpha.shape[-3:] == op.shape[1:]
    )


def _repeats_a_batch(op: TflOp) -> bool:
    """Return whether BATCH_MATMUL broadcasts, has too many axes, one tensor twice, or its constant in front."""
    left, right = op.operands
    shapes = [with_rank(sizes(each), len(op.out)) for each in op.operands]
    plain_matrix = is_constant(right) and len(sizes(right)) == 2
    broadcasts = shapes[0][:-2] != shapes[1][:-2] and not plain_matrix
    return broadcasts or _is_deep(op) or left == right or (is_constant(left) and not is_constant(right))


def _is_grouped(op: TflOp) -> bool:
    """Return whether a convolution has groups whose channels are no multiple of four."""
    count, depth, outputs = products.groups_of(op)
    return count > 1 and is_constant(op.operands[1]) and bool(depth % 4 or outputs % 4)


def _follows_padding(*fills: str) -> Condition:
    """Return whether the operand is padded, maybe reshaped since: the GPU fuses that, and forgets what it pads with."""

    def holds(op: TflOp) -> bool:
        made_by = maker(op.x)
        while made_by is not None and made_by.name == "tfl.reshape":
            made_by = maker(made_by.operands[0])
        if made_by is None or made_by.name not in ("tfl.pad", "tfl.padv2"):
            return False
        fill = elements(made_by.operands[2]) if made_by.name == "tfl.padv2" else None
        if made_by.name == "tfl.pad" or (fill is not None and fill.item() == 0):
            return "zero" in fills
        if fill is not None and fill.item() < _LOWEST:
            return "lowest" in fills
        return "other" in fills

    return holds


def _pads_with_infinity(op: TflOp) -> bool:
    """Return whether the padding is infinite and read by more than pools, with which the GPU fuses it."""
    fill = op.constant(2)
    if fill is None or fill.dtype != np.float32 or not np.isinf(fill).any():
        return False
    return not all(map(_is_pool, _readers(op.operation)))


def _readers(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Yield what reads the first result, through RESHAPE."""
    for use in operation.results[0].uses:
        reader = use.owner.operation
        if reader.name == "tfl.reshape":
            yield from _readers(reader)
        else:
            yield reader


def _meets_infinity(op: TflOp) -> bool:
    return op.tfl.dtype_of(op.x) == np.float32 and infinities.may_be_infinite(op.x)


def _is_pool(reader: ir.Operation) -> bool:
    return str(reader.name) == "tfl.max_pool_2d"


def _compares_a_constant_flag(op: TflOp) -> bool:
    return op.tfl.dtype_of(op.x).kind == "b" and (op.is_constant(0) or op.is_constant(1))


def _has_one_operand(op: TflOp) -> bool:
    """Return whether both operands are the same tensor."""
    left, right = op.operands
    return bool(left == right)


# Their results are never far below 0.
_BOUNDED = frozenset(
    "relu relu6 relu_n1_to_1 logistic tanh softmax elu gelu hard_swish sqrt square abs exp".split()
)
# Theirs are never below the lowest of their operands, nor 0.
_KEEPS_BOUNDS = frozenset(
    (
        "average_pool_2d concatenation max_pool_2d maximum pad reduce_max reshape resize_bilinear "
        "resize_nearest_neighbor reverse_v2 slice split split_v strided_slice transpose"
    ).split()
)


def _is_bounded(tensor: Tensor) -> bool:
    """Return whether activations before it keep a tensor from numbers far below 0."""
    waiting, seen = [tensor], set[Tensor]()
    while waiting:
        current = waiting.pop()
        if current in seen or not is_tensor(current) or is_constant(current):
            continue
        seen.add(current)
        made_by = maker(current)
        if made_by is None:
            return False
        name = made_by.name.removeprefix("tfl.")
        fused = "fused_activation_function" in made_by.attributes
        if name in _BOUNDED or (fused and str(made_by.attributes["fused_activation_function"]) != '"NONE"'):
            continue
        if name not in _KEEPS_BOUNDS:
            return False
        waiting += made_by.operands
    return True


def _pools_far_below(op: TflOp) -> bool:
    """Return whether MAX_POOL_2D may meet numbers below the GPU's first, and no rewriting has seen to it."""
    readers = [use.owner for use in op.operation.results[0].uses]
    if products.is_scaled(op.x) or any(map(products.is_compared, readers)):
        return False
    return not _is_bounded(_before_padding(op))


def _before_padding(op: TflOp) -> Tensor:
    """Return the operand of a pool before its own padding with numbers below all others, which no maximum is.

    No window lies in the padding alone: each side has fewer lines than a window.
    """
    padding = maker(op.x)
    if padding is None or padding.name != "tfl.padv2":
        return op.x
    amounts, fill = (elements(each) for each in list(padding.operands)[1:])
    if amounts is None or fill is None or fill.item() > _LOWEST or len(amounts) != MOST:
        return op.x
    window = [1, op.attribute("filter_height"), op.attribute("filter_width"), 1]
    return padding.operands[0] if (amounts.max(axis=1) < window).all() else op.x


def _select_is_partial(op: TflOp) -> bool:
    """Return whether a choice is neither one number nor as large as the result, or the condition has other axes."""
    for place, each in enumerate(op.operands):
        shape = sizes(each)
        if prod(shape) == 1 and (is_constant(each) or (place == 0 and len(shape) == MOST)):
            continue
        if shape != op.out:
            return True
    return _is_deep(op)


def _all(*conditions: Condition) -> Condition:
    return lambda op: all(holds(op) for holds in conditions)


def _any(*conditions: Condition) -> Condition:
    return lambda op: any(holds(op) for holds in conditions)


def _not(condition: Condition) -> Condition:
    return lambda op: not condition(op)


_NO_ACTIVATION = _has("fused_activation_function", "NONE", None)

# ---- the rules

_UNARY = (
    "abs cast ceil cos elu exp floor gelu hard_swish leaky_relu log logical_not logistic neg relu relu6 relu_n1_to_1 "
    "round rsqrt sign sin sqrt square tanh"
)
_BINARY = (
    "add atan2 div equal floor_div floor_mod greater greater_equal less less_equal logical_and logical_or maximum "
    "minimum mul not_equal pow squared_difference sub"
)

# (operations, rule); of several that hold the first is applied, and its result is examined again.
_TABLE: tuple[tuple[str, Condition, Rewrite], ...] = (
    # Not taken.
    ("squeeze expand_dims", _always, movement.as_reshape),
    ("relu_0_to_1", _always, activations.clamp_to_one),
    ("log_softmax", _always, activations.log_softmax),
    ("local_response_normalization", _always, activations.local_response_normalization),
    ("l2_normalization", _always, activations.l2_normalization),
    ("broadcast_to", _always, movement.broadcast_to),
    ("arg_min", _is_constant(1), arithmetic.arg_min),
    ("cumsum", lambda op: op.dtype == np.int32, arithmetic.cumsum_of_floats),
    ("logical_and logical_or", _any(_is_constant(0), _is_constant(1)), arithmetic.logic_of_integers),
    ("equal not_equal", _compares_a_constant_flag, arithmetic.compare_integers),
    (
        "div greater greater_equal less less_equal maximum minimum pow sub",
        _has_one_operand,
        lambda op: op.again([op.x, copy(op.tfl, op.x)], op.out),
    ),
    ("strided_slice tile", _is_flag, movement.through_integers),
    (
        "one_hot",
        lambda op: op.dtype != np.float32 and op.is_constant(2, 3),
        gathers.one_hot_of_floats,
    ),
    ("gather_nd", _always, gathers.gather_nd),
    ("scatter_nd", gathers.scatters_constantly, gathers.scatter_nd),
    ("gather", _index_is_not_a_row, gathers.gather),
    ("mirror_pad", _mirrors_more, movement.mirror_pad),
    ("strided_slice", _slices_otherwise, movement.strided_slice),
    ("transpose_conv", _not(_NO_ACTIVATION), activations.split_activation),
    ("prelu", _slope_does_not_fit, activations.prelu),
    # Taken and computed wrongly.
    ("softmax", _any(_meets_infinity, infinities.has_nan_test), infinities.softmax),
    ("reduce_max reduce_min", _meets_infinity, infinities.reduce),
    ("arg_max", _meets_infinity, infinities.arg_max),
    ("topk_v2", _meets_infinity, infinities.topk),
    ("padv2", _pads_with_infinity, products.pad_with_infinity),
    ("pad padv2", _pads_batch, movement.pad),
    (
        "average_pool_2d",
        _follows_padding("zero", "lowest", "other"),
        lambda op: products.separate(op.tfl, op),
    ),
    ("max_pool_2d", _follows_padding("zero", "other"), lambda op: products.separate(op.tfl, op)),
    ("max_pool_2d", _pools_far_below, products.pool_far_below_zero),
    (
        "conv_2d depthwise_conv_2d",
        _follows_padding("lowest", "other"),
        lambda op: products.separate(op.tfl, op),
    ),
    ("conv_2d", _is_grouped, products.split_groups),
    ("batch_matmul", _repeats_a_batch, products.batch_matmul),
    (
        "fully_connected",
        lambda op: len(op.shape) > 2 and not op.attribute("keep_num_dims"),
        products.flatten_rows,
    ),
    ("arg_max", _is_narrow, arithmetic.arg_max),
    ("topk_v2", lambda op: op.shape[-1] % 4 != 0 or _is_deep(op), arithmetic.topk),
    (
        "cumsum",
        lambda op: (
            op.is_constant(1)
            and (
                len(op.shape) != MOST
                or op.shape[0] > 1
                or bool(op.attribute("exclusive") or op.attribute("reverse"))
            )
        ),
        arithmetic.cumsum,
    ),
    (
        "reverse_v2",
        lambda op: (
            op.is_constant(1) and (len(op.shape) != MOST or op.shape[0] > 1 or sizes(op.operands[1]) != (1,))
        ),
        movement.reverse,
    ),
    (
        "softmax",
        lambda op: len(op.shape) < 2 or op.attribute("beta") != 1 or _is_deep(op),
        activations.softmax,
    ),
    ("pow", _is_constant(0), powers.make_base_variable),
    ("pow", powers.is_wrong, powers.power),
    ("leaky_relu", lambda op: op.attribute("alpha") > 1, activations.leaky_relu),
    ("space_to_depth depth_to_space", lambda op: op.shape[0] > 1, movement.space_to_depth),
    (_BINARY, _batches_a_constant, arithmetic.merge_broadcast),
    ("select_v2", _select_is_partial, arithmetic.select),
    ("mean", _all(_is_given, _is_constant(1)), arithmetic.mean_as_sum),
    # More axes than four, or none.
    (_UNARY, _any(_is_deep, _is_scalar), arithmetic.flatten_unary),
    (_BINARY, _any(_is_deep, _is_scalar), arithmetic.merge_broadcast),
    ("mean sum reduce_max reduce_min reduce_prod", _all(_is_deep, _is_constant(1)), arithmetic.reduce),
    ("transpose", _all(_is_deep, _is_constant(1)), movement.transpose),
    ("slice", _all(_is_deep, _is_constant(1), _is_constant(2)), movement.slice_),
    ("tile", _all(_is_deep, _is_constant(1)), movement.tile),
    ("concatenation", _is_deep, movement.concatenate),
    ("pack", _is_deep, movement.pack),
    ("unpack", _is_deep, movement.unpack),
    ("split", _all(_is_deep, _is_constant(0)), movement.split),
    ("split_v", _all(_is_deep, _is_constant(2)), movement.split_v),
    (
        "one_hot",
        _all(
            _any(_is_deep, lambda op: op.attribute("axis") % len(op.out) != len(op.out) - 1), _is_constant(1)
        ),
        gathers.one_hot,
    ),
    ("reshape", _joins, movement.join_reshapes),
    ("cast", lambda op: op.tfl.dtype_of(op.x) == op.dtype, movement.as_reshape),
    ("cast", _is_constant(0), lambda op: op.tfl.constant(movement.require(op, 0), op.dtype)),
)


def _by_operation() -> Iterator[tuple[str, Rule]]:
    for names, holds, rewrite in _TABLE:
        for name in names.split():
            yield name, Rule(holds, rewrite)


RULES: Mapping[str, tuple[Rule, ...]] = {
    name: tuple(rule for each, rule in _by_operation() if each == name)
    for name in dict.fromkeys(each for each, _ in _by_operation())
}

# What no rule mends: operations, condition, and why they are refused.
REFUSED: tuple[tuple[str, Condition, str], ...] = (
    (
        "equal not_equal",
        _has_one_operand,
        "compares numbers with themselves to find NaN, and a GPU's NaN may equal itself",
    ),
    (
        "mean",
        lambda op: op.dtype == np.int32,
        "is a mean of integers, which the GPU lacks; cast them to float before it",
    ),
)

# Why a cast to float16 is refused where something inside reads it.
NO_ROUNDING = "rounds to float16, and the GPU computes on with numbers that are not rounded"

# Why it refuses what has no rule, by operation.
REASONS: Mapping[str, str] = {
    "where": "gives a number of results that depends on values",
    "while": "is a loop, and the GPU runs none; make its number of steps constant and at most 128",
    "non_max_suppression_v4": "chooses boxes by their values, and the GPU runtime cannot; do this after the model",
    "scatter_nd": "writes to places that are computed at run time",
    "bitcast": "reads the bits of a number",
    "bitwise_xor": "computes on bits",
    "right_shift": "computes on bits",
}
