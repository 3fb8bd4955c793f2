"""Folds scales and offsets per channel (BatchNormalization, Mul, Add) into the operators before them.

Given:  y = a * x + b per channel, with constant a and b
Result: part of a convolution that nothing else reads: its weights are multiplied by a, its bias becomes a * bias + b;
        else one batch_norm, together with a scale or offset right before it.

The arithmetic is in float64. A product beyond float16 is not folded. Scales of grids stay, so that a proof can read
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxport.converters.coreml.library import mb, types
from onnxport.converters.coreml.passes.taps import TapTracker
from onnxport.core.arrays import Array
from onnxport.optimizers.float16.constants import to_half

_CONVOLUTIONS = ("conv", "conv_transpose")
_BINARY = ("mul", "add", "sub", "real_div")
# A channel whose weights are all smaller would lose digits in float16, whose normal numbers end at 6e-5.
_LEAST_HALF = 2.0**-9


@dataclass(frozen=True)
class _Affine:
    """scale * x + shift, one number per channel."""

    x: Any
    scale: Array
    shift: Array


def fold_affine(program: Any, taps: TapTracker) -> None:
    """Fold scales and offsets of channels into the operators before them."""
    for function in program.functions.values():
        _fold_block(function, taps)


def _fold_block(block: Any, taps: TapTracker) -> None:
    with block:
        for operation in list(block.operations):
            for inner in operation.blocks:
                _fold_block(inner, taps)
            affine = _as_affine(operation)
            if affine is None or not _is_read_once(affine.x, block):
                continue
            before, folded = affine.x.op, None
            if before.op_type in _CONVOLUTIONS:
                folded = _fold_into_convolution(before, affine)
            elif before.op_type == "batch_norm" or (before.op_type == "mul" and operation.op_type != "mul"):
                folded = _fold_into_norm(before, affine)
            if folded is not None:
                _replace(operation, folded, taps)


def _fold_into_convolution(convolution: Any, affine: _Affine) -> Any:
    """Return the convolution with other weights; None if its own are not constant, or those beyond the type."""
    weight, bias = convolution.weight, convolution.bias
    if not _is_const(weight) or not (bias is None or _is_const(bias)):
        return None
    numbers = weight.val.astype(np.float64)
    if convolution.op_type == "conv":
        per_weight = affine.scale.reshape(-1, *(1,) * (numbers.ndim - 1))
    else:  # [in, out of one group, ...], the inputs of the groups one after the other
        groups = 1 if convolution.groups is None else int(convolution.groups.val)
        by_group = affine.scale.reshape(groups, 1, -1)
        repeated = np.repeat(by_group, numbers.shape[0] // groups, axis=1).reshape(numbers.shape[0], -1)
        per_weight = repeated.reshape(*repeated.shape, *(1,) * (numbers.ndim - 2))
    offset = np.zeros(len(affine.scale)) if bias is None else bias.val.astype(np.float64)
    scaled = _round(numbers * per_weight, weight.val.dtype)
    shifted = _round(offset * affine.scale + affine.shift, weight.val.dtype, least=0.0)
    if scaled is None or shifted is None:
        return None
    arrays, old = {"weight": scaled, "bias": shifted}, (weight, convolution.inputs.get("bias"))
    constants = {
        name: mb.const(val=array, before_op=convolution, name=f"{convolution.name}_{name}_folded")
        for name, array in arrays.items()
    }
    convolution.set_inputs(**constants)
    for var in old:
        _remove_unread(var and var.op)
    return convolution


def _fold_into_norm(before: Any, affine: _Affine) -> Any:
    first = _as_affine(before)
    if first is None or not 3 <= len(affine.x.shape) <= 5:
        return None
    dtype = types.nptype_from_builtin(affine.x.dtype)
    gamma = _round(first.scale * affine.scale, dtype, least=0.0)
    beta = _round(first.shift * affine.scale + affine.shift, dtype, least=0.0)
    if gamma is None or beta is None:
        return None
    zeros, ones = np.zeros_like(gamma), np.ones_like(gamma)
    made = mb.batch_norm(
        x=first.x,
        mean=zeros,
        variance=ones,
        gamma=gamma,
        beta=beta,
        epsilon=dtype(0),
        before_op=before,
        name=f"{before.name}_affine",
    )
    return made.op


def _replace(operation: Any, folded: Any, taps: TapTracker) -> None:
    block, old, new = operation.enclosing_block, operation.outputs[0], folded.outputs[0]
    before = [var.op for var in _flat_inputs(operation)]
    name = old.name
    block.replace_uses_of_var_after_op(anchor_op=operation, old_var=old, new_var=new)
    block.remove_ops([operation])
    taps.replace(old, new)
    new.name = folded.name = name
    for each in before:
        _remove_unread(each)


def _remove_unread(operation: Any) -> None:
    """Remove an operator that nothing reads, and what only it read."""
    if operation is None or operation.enclosing_block is None:
        return
    if any(var.child_ops or var.consuming_blocks for var in operation.outputs):
        return
    before = [var.op for var in _flat_inputs(operation)]
    operation.enclosing_block.remove_ops([operation])
    for each in before:
        _remove_unread(each)


def _as_affine(operation: Any) -> _Affine | None:
    if operation.op_type == "batch_norm":
        return _norm_as_affine(operation)
    return _binary_as_affine(operation) if operation.op_type in _BINARY else None


def _norm_as_affine(operation: Any) -> _Affine | None:
    mean, variance, gamma, beta = operation.mean, operation.variance, operation.gamma, operation.beta
    if not all(var is None or _is_const(var) for var in (mean, variance, gamma, beta)):
        return None
    mean, variance = (var.val.astype(np.float64) for var in (mean, variance))
    gamma = np.ones_like(mean) if gamma is None else gamma.val.astype(np.float64)
    beta = np.zeros_like(mean) if beta is None else beta.val.astype(np.float64)
    scale = gamma / np.sqrt(variance + float(operation.epsilon.val))
    return _Affine(operation.x, scale, beta - mean * scale)


def _binary_as_affine(operation: Any) -> _Affine | None:
    x, y = operation.x, operation.y
    if _is_const(x) and operation.op_type in ("mul", "add"):
        x, y = y, x
    if not _is_const(y) or x.val is not None or np.asarray(y.val).dtype.kind != "f" or len(x.shape) < 3:
        return None
    channels = _per_channel(np.asarray(y.val, np.float64), x.shape)
    if channels is None or _is_of_grid(operation, x):
        return None
    if operation.op_type in ("add", "sub"):
        return _Affine(x, np.ones_like(channels), channels if operation.op_type == "add" else -channels)
    with np.errstate(divide="ignore"):
        scale = channels if operation.op_type == "mul" else 1 / channels
    return _Affine(x, scale, np.zeros_like(channels))


def _is_of_grid(operation: Any, x: Any) -> bool:
    """Return whether it divides what is rounded next, or multiplies integers (ops/quantization.py)."""
    is_rounded = any(each.op_type == "round" for each in operation.outputs[0].child_ops)
    return is_rounded or (x.op is not None and x.op.op_type == "cast" and types.is_int(x.op.x.dtype))


def _per_channel(numbers: Array, shape: Any) -> Array | None:
    """Return `numbers` as one per channel of a tensor of `shape`; None if they are not of that form."""
    count = shape[1]
    if not isinstance(count, int | np.integer) or numbers.ndim > len(shape):
        return None
    aligned = (1,) * (len(shape) - numbers.ndim) + numbers.shape
    if aligned[0] != 1 or any(size != 1 for size in aligned[2:]) or aligned[1] not in (1, count):
        return None
    return np.broadcast_to(numbers.reshape(-1), (int(count),))


def _round(numbers: Array, dtype: Any, least: float = _LEAST_HALF) -> Array | None:
    """Round to `dtype`; None if that loses more than the last digits."""
    if not np.isfinite(numbers).all():
        return None
    largest = np.abs(numbers.reshape(len(numbers), -1)).max(axis=1)
    if dtype == np.float16:
        if largest.max() > np.finfo(np.float16).max or ((largest > 0) & (largest < least)).any():
            return None
        return to_half(numbers)
    return None if largest.max() > np.finfo(np.float32).max else numbers.astype(dtype)


def _is_read_once(var: Any, block: Any) -> bool:
    operation = var.op
    is_here = operation is not None and operation.enclosing_block is block and len(operation.outputs) == 1
    return is_here and len(var.child_ops) == 1 and not var.consuming_blocks


def _is_const(var: Any) -> bool:
    return var.op is not None and var.op.op_type == "const"


def _flat_inputs(operation: Any) -> list[Any]:
    return list(operation.get_flattened_inputs())
