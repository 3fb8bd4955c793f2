"""float32 arithmetic in TFLite; each operator is one tfl op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from onnxport.converters.formulas import Formula
from onnxport.converters.tflite.broadcasting import broadcast_shape
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.kernels import NoKernel
from onnxport.converters.tflite.tensors import Tensor

# Element types that TFLite computes in float32.
_COMPUTED = frozenset("bfloat16 float16 float32 float64".split())


class Elements(Formula):
    """A tensor in float32 arithmetic."""

    def __init__(self, tfl: TflBuilder, tensor: Tensor) -> None:
        self.tfl, self.tensor = tfl, tensor

    def call(self, name: str, *others: Elements | float) -> Elements:
        """Emit `tfl.<name>` on this and others that broadcast with it."""
        operands = [self.tensor, *(self._operand(other) for other in others)]
        shape = broadcast_shape(*(self.tfl.shape_of(operand) for operand in operands))
        return Elements(self.tfl, self.tfl.op(name, operands, shape, np.float32))

    def _operand(self, other: Elements | float) -> Tensor:
        return other.tensor if isinstance(other, Elements) else self.tfl.constant(other, np.float32)

    def binary(self, op: str, other: Elements | float, /, *, swapped: bool = False) -> Elements:
        if swapped:
            return Elements(self.tfl, self._operand(other)).call(op, self)
        return self.call(op, other)

    def __neg__(self) -> Elements:
        return self.call("neg")

    def where_at_least(self, limit: float, then: Elements, otherwise: Elements | float) -> Elements:
        given = [then.tensor, self._operand(otherwise)]
        own, *others = (self.tfl.shape_of(each) for each in (self.tensor, *given))
        reached = self.tfl.op("greater_equal", [self.tensor, self._operand(limit)], own, bool)
        return Elements(self.tfl, self.tfl.op("select_v2", [reached, *given], broadcast_shape(own, *others)))

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


def formula(node: TflNode, tfl: TflBuilder, body: Callable[[Elements], Elements]) -> None:
    """Emit `body` of the first operand, computed in float32 and rounded once to the operand's type."""
    x = node.x
    if x.dtype.name not in _COMPUTED:
        raise NoKernel(f"TFLite computes no {node.op} of {x.dtype.name}")
    order = tfl.common_order(x)
    result = body(Elements(tfl, tfl.cast(tfl.tensor(x, order), np.float32))).tensor
    node.emit(tfl.computed(tfl.cast(result, x.dtype), order))
