"""A builder that takes ONNX values and makes their tensors in the wanted axis order and element type."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.driver import Scope
from onnxport.converters.lowering import NodeView
from onnxport.converters.tflite.broadcasting import broadcast_merged
from onnxport.converters.tflite.kernels import BROADCAST_RANK, COMPARISONS
from onnxport.converters.tflite.layout import (
    Permutation,
    broadcast_shape,
    channels_last,
    identity,
    permute,
    transpose_between,
)
from onnxport.converters.tflite.numbers.conversions import narrow
from onnxport.converters.tflite.tensors import DtypeLike, Tensor, TensorBuilder
from onnxport.converters.tflite.values import Value, constant, scalar
from onnxport.core.arrays import Array


class TflBuilder(TensorBuilder):
    """The module under construction, with ONNX values as operands.

    Attributes:
        scope: of the node that is being lowered.
        may_not_end: whether some input might keep a loop running.
        runs_loops: whether the target runs loops.
    """

    scope: Scope[Value]
    may_not_end = False
    runs_loops = True

    def tensor(self, value: Value, perm: Permutation | None = None) -> Tensor:
        """Return the value's physical tensor in axis order `perm`, ONNX's own by default; made once."""
        perm = identity(value.rank) if perm is None else perm
        if perm not in value.copies:
            value.copies[perm] = self._make_copy(value, perm)
        return value.copies[perm]

    def _make_copy(self, value: Value, perm: Permutation) -> Tensor:
        if value.quantized is not None:
            return self.quantized.constant(value.quantized.transpose(perm))
        if value.constant is not None:
            return self.constant(np.transpose(value.constant, perm))
        if not value.copies:
            assert value.make is not None, "a value is constant, computed, or can be made"
            value.copies[identity(value.rank)] = value.make()
            return self.tensor(value, perm)
        order = value.order
        return self.transpose(value.copies[order], transpose_between(order, perm))

    def value(self, tensor: Tensor, order: Permutation | None = None) -> Value:
        """Return a value with `tensor` as its physical tensor in axis order `order`."""
        physical = self.shape_of(tensor)
        order = identity(len(physical)) if order is None else order
        shape = permute(physical, transpose_between(order, identity(len(order))))
        return Value(shape, self.dtype_of(tensor), copies={order: tensor})

    def run_time_shape(self, value: Value, dtype: DtypeLike = np.int32) -> Tensor:
        """Return the value's dimensions in ONNX's order, [rank] of int32 or int64; moves none of its data."""
        order = value.order if value.copies else identity(value.rank)
        attributes = {} if np.dtype(dtype) == np.int32 else {"out_type": self.type_attribute(dtype)}
        shape = self.op("shape", [self.tensor(value, order)], [value.rank], dtype, **attributes)
        if order == identity(value.rank):
            return shape
        places = self.int32(transpose_between(order, identity(value.rank)))
        return self.op("gather", [shape, places], [value.rank], dtype, axis=0, batch_dims=0)

    def convert(self, value: Value, dtype: DtypeLike) -> Value:
        """Return the value's elements in another type."""
        if value.dtype == np.dtype(dtype):
            return value
        if value.constant is not None:
            narrows = value.dtype == np.float64 and np.dtype(dtype) == np.float32
            return constant(narrow(value.constant) if narrows else value.constant.astype(dtype))
        order = self.common_order(value)
        result = self.value(self.cast(self.tensor(value, order), dtype), order)
        result.is_size = value.is_size
        return result

    def float32(self, value: Value) -> Value:
        """Return the value in float32, in which everything is computed that is no integer."""
        return self.convert(value, np.float32)

    def operand(self, value: Value, order: Permutation, *, shrinks: bool = True) -> Tensor:
        """Return the value as an operand of an op that broadcasts to a result of axis order `order`.

        A constant of one element becomes a scalar if it `shrinks`, which it must not where no other operand
        gives the result its rank.
        """
        rank = len(order)
        ones = (1,) * (rank - value.rank)
        if value.constant is not None:
            is_scalar = value.constant.size == 1 and shrinks
            shape, axes = ((), ()) if is_scalar else (ones + value.constant.shape, order)
            if value.quantized is not None and value.quantized.grid.axis is None:
                return self.quantized.constant(value.quantized.reshape(shape).transpose(axes))
            return self.constant(np.transpose(value.constant.reshape(shape), axes))
        if value.rank == rank:
            return self.tensor(value, order)
        if order == identity(rank) or all(dim == 1 for dim in value.shape):
            return self.tensor(value)  # TFLite broadcasts missing leading axes as ONNX does
        return self.transpose(self.reshape(self.tensor(value), [*ones, *value.shape]), order)

    def common_order(self, *values: Value) -> Permutation:
        """Return the order for an op that works in any: its largest operand's, channels last preferred.

        ONNX's order is preferred to others, unless their operand is larger: matrix products want it next. A residual
        stream would else keep the order in which an image was cut into patches, and be transposed at every layer.
        """
        rank = max(value.rank for value in values)
        full = [value for value in values if value.constant is None and value.rank == rank]
        if not full:
            return identity(rank)
        sizes = [prod(dim or 1 for dim in value.shape) for value in full]
        plain = max(
            (n for value, n in zip(full, sizes, strict=True) if value.order == identity(rank)), default=0
        )

        def preference(place: int) -> tuple[bool, int, bool]:
            order, size = full[place].order, sizes[place]
            is_plain = order == identity(rank)
            return not is_plain and (order == channels_last(rank) or size > plain), size, is_plain

        return full[max(range(len(full)), key=preference)].order

    # ---- ops on values

    def apply(
        self, name: str, x: Value, *operands: Tensor, order: Permutation | None = None, **attributes: object
    ) -> Value:
        """Emit `tfl.<name>`, whose result has x's shape, in an axis order, by default that of x."""
        order = self.common_order(x) if order is None else order
        tensors = [self.tensor(x, order), *operands]
        return self.value(self.op(name, tensors, permute(x.shape, order), **attributes), order)

    def broadcast(self, name: str, *operands: Value | float) -> Value:
        """Emit `tfl.<name>` on operands that broadcast as NumPy's do; numbers have the type of the last value.

        Raises:
            NoKernel: on the operands' type, or on a broadcast over more axes than the kernel walks.
        """
        dtype = next(each.dtype for each in reversed(operands) if isinstance(each, Value))
        values = [each if isinstance(each, Value) else scalar(each, dtype) for each in operands]
        shape = broadcast_shape(*(value.shape for value in values))
        rank = len(shape)
        order = self.common_order(*values)
        ranked = any(v.rank == rank and (v.constant is None or v.constant.size > 1) for v in values)
        tensors = [self.operand(value, order, shrinks=ranked) for value in values]
        result = permute(shape, order)
        dtype = np.dtype(bool) if name in COMPARISONS else values[-1].dtype
        if rank > BROADCAST_RANK[name] and any(self.shape_of(tensor) != result for tensor in tensors):
            return self.value(broadcast_merged(self, name, tensors, result, dtype), order)
        return self.value(self.op(name, tensors, result, dtype), order)


TflNode = NodeView[Value]


def require_constant(node: TflNode, index: int, what: str) -> Array:
    """Return the constant operand at `index`; refuses the node where it is computed at run time."""
    value = node.input(index)
    if value.constant is None:
        node.unsupported(
            f"{what} (input {index}) is computed at run time and TFLite needs a constant; "
            "fix the input's size with --shape NAME=... if it follows from that"
        )
    return value.constant


def optional_constant(node: TflNode, index: int, what: str) -> Array | None:
    """Return the constant operand at `index`, None if it is absent."""
    return require_constant(node, index, what) if node.has_input(index) else None
