"""Tensors as operands of formulas, in float32 and in int32 arithmetic; each operator is one tfl op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np

from onnxport.converters.formulas import Formula, IntegerFormula
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.kernels import COMPARISONS, NoKernel
from onnxport.converters.tflite.layout import broadcast_shape
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value
from onnxport.core.arithmetic import Arithmetic

_INT32_MAX = np.iinfo(np.int32).max
# Element types that TFLite computes in float32.
_COMPUTED = frozenset("bfloat16 float16 float32 float64".split())


class _TensorArithmetic(Arithmetic[Any]):
    dtype: ClassVar[type]  # of numbers and arrays beside the tensor, which are constants

    def __init__(self, tfl: TflBuilder, tensor: Tensor) -> None:
        self.tfl, self.tensor = tfl, tensor

    def _operand(self, other: Any) -> Tensor:
        return other.tensor if isinstance(other, _TensorArithmetic) else self.tfl.constant(other, self.dtype)

    def call(self, name: str, *others: Any) -> Self:
        """Emit `tfl.<name>` on this and others that broadcast with it."""
        operands = [self.tensor, *map(self._operand, others)]
        dtype = bool if name in COMPARISONS else None
        shape = broadcast_shape(*map(self.tfl.shape_of, operands))
        return type(self)(self.tfl, self.tfl.op(name, operands, shape, dtype))

    def binary(self, op: str, other: Any, /, *, swapped: bool = False) -> Self:
        return type(self)(self.tfl, self._operand(other)).call(op, self) if swapped else self.call(op, other)


class Elements(_TensorArithmetic, Formula):
    """A tensor in float32 arithmetic."""

    dtype = np.float32

    def __neg__(self) -> Elements:
        return self.call("neg")

    def where_at_least(self, limit: float, then: Elements, otherwise: Elements | float) -> Elements:
        other = Elements(self.tfl, self._operand(otherwise))
        return self.call("greater_equal", limit).call("select_v2", then, other)

    def polynomial(self, coefficients: Sequence[float]) -> Elements:
        """Return c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule."""
        *rest, last, first = coefficients
        return reduce(lambda total, c: total * self + c, reversed(rest), self * first + last)

    def log1p_of_fraction(self) -> Elements:
        """Return log(1 + u) for u in [0, 1], exact to the last bits for small u, where a float32 logarithm is not.

        log(1 + u) = 2 artanh(s) with s = u / (2 + u) <= 1/3; the series in s^2 ends below 1e-8.
        """
        s = self / (self + 2.0)
        return s * (s * s).polynomial([2.0 / (2 * k + 1) for k in range(8)])


def elu(x: Elements, alpha: float) -> Elements:
    """Return x where x >= 0, alpha * (exp(x) - 1) elsewhere."""
    return x.maximum(0.0) + x.minimum(0.0).call("elu") * alpha


def softplus(x: Elements) -> Elements:
    """Return log(1 + exp(x)), in a form that neither overflows nor cancels."""
    return x.maximum(0.0) + (-x.call("abs")).call("exp").log1p_of_fraction()


def lower_formula(
    node: TflNode, tfl: TflBuilder, body: Callable[..., Elements], defaults: Mapping[str, float] = {}
) -> None:
    """Emit `body` of the first operand, computed in float32 and rounded once to the operand's type.

    Args:
        defaults: the attributes that `body` takes as keywords, with their defaults.
    """
    x = node.x
    if x.dtype.name not in _COMPUTED:
        raise NoKernel(f"TFLite computes no {node.op} of {x.dtype.name}")
    order = tfl.common_order(x)
    attributes = {name: node.attribute(name, default) for name, default in defaults.items()}
    result = body(Elements(tfl, tfl.cast(tfl.tensor(x, order), np.float32)), **attributes).tensor
    node.emit(tfl.value(tfl.cast(result, x.dtype), order))


class Integers(_TensorArithmetic, IntegerFormula):
    """A tensor in int32 arithmetic."""

    dtype = np.int32

    def where(self, then: Any, otherwise: Any) -> Integers:
        return self.call("select_v2", then, otherwise)

    def as_numbers(self) -> Integers:
        return Integers(self.tfl, self.tfl.cast(self.tensor, np.int32))

    def sum(self, axis: int) -> Integers:
        shape, operands = self.tfl.shape_of(self.tensor), [self.tensor, self.tfl.int32([axis])]
        left = shape[:axis] + shape[axis + 1 :]
        return Integers(self.tfl, self.tfl.op("sum", operands, left, keep_dims=False))

    def running_sum(self) -> Integers:
        shape, operands = self.tfl.shape_of(self.tensor), [self.tensor, self.tfl.int32(0)]
        return Integers(self.tfl, self.tfl.op("cumsum", operands, shape, exclusive=False, reverse=False))

    def element(self, index: int) -> Integers:
        """Return one element of a vector as a scalar."""
        return Integers(self.tfl, self.tfl.reshape(self.tfl.slice(self.tensor, [index], [1]), ()))

    def column(self) -> Integers:
        return Integers(self.tfl, self.tfl.reshape(self.tensor, (self.tfl.shape_of(self.tensor)[0], 1)))


def integers(tfl: TflBuilder, value: Value) -> Integers:
    """Return an operand as int32; elements beyond its range ("to the end") become its limits."""
    if value.constant is not None:
        return Integers(tfl, tfl.int32(np.clip(value.constant, -_INT32_MAX, _INT32_MAX)))
    if value.dtype == np.int64 and not value.is_size:
        value = tfl.broadcast("maximum", tfl.broadcast("minimum", value, _INT32_MAX), -_INT32_MAX)
    return Integers(tfl, tfl.tensor(tfl.convert(value, np.int32)))


def axis_table(tfl: TflBuilder, axes: Value, rank: int) -> Integers:
    """Return [rank, len(axes)]: 1 where `axes` names the row's axis in that column, 0 elsewhere."""
    wrapped = integers(tfl, axes).within(rank)
    rows = Integers(tfl, tfl.int32(np.arange(rank)[:, None]))
    return rows.equals(wrapped).as_numbers()
