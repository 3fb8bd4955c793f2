"""Einsum in MIL's operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import Size, product, reshaped, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.einsum import Einsum
from onnxport.converters.lowering import NodeView
from onnxport.core.arrays import Array


@lower("Einsum")
def einsum(node: NodeView[Value], mil: MilBuilder) -> None:
    lowering = _Einsum(node, mil)
    value = lowering.run()
    node.emit(mil.identity(x=value) if any(value is each for each in lowering.values) else value)


class _Einsum(Einsum[Value, Size]):
    def __init__(self, node: NodeView[Value], mil: MilBuilder) -> None:
        self.mil = mil
        super().__init__(node)

    def size(self, value: Value, axis: int) -> Size:
        return size_of(self.mil, value, axis)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return self.mil.transpose(x=value, perm=list(perm))

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        return self.mil.squeeze(x=value, axes=list(axes))

    def sum(self, value: Value, axes: Sequence[int]) -> Value:
        return self.mil.reduce_sum(x=value, axes=list(axes), keep_dims=False)

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        return reshaped(self.mil, value, sizes)

    def gather(self, value: Value, indices: Array, axis: int) -> Value:
        return self.mil.gather(x=value, indices=indices.astype(np.int32), axis=axis)

    def matrix(
        self, value: Value, batch: Sequence[Size], rows: Sequence[Size], columns: Sequence[Size]
    ) -> Value:
        return self.reshape(value, [product(self.mil, each) for each in (batch, rows, columns)])

    def multiply(self, left: Value, right: Value, *, is_outer: bool) -> Value:
        return self.mil.mul(x=left, y=right) if is_outer else self.mil.matmul(x=left, y=right)
