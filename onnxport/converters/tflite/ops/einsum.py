"""Einsum in TFLite's ops."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.converters.einsum import Einsum, Term
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import product
from onnxport.converters.tflite.ops.matmul import matmul
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.ops.reshape import reshape, transpose
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value
from onnxport.core.arrays import Array

Size = int | None


@lower("Einsum")
def einsum(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(_Einsum(node, tfl).run())


class _Einsum(Einsum[Value, Size]):
    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.tfl = tfl
        super().__init__(node)

    def size(self, value: Value, axis: int) -> Size:
        return value.shape[axis]

    def length(self, term: Term[Value], letter: str) -> Size:
        return term.value.shape[term.letters.index(letter)]

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return transpose(self.tfl, value, tuple(perm))

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        return self.reshape(value, [size for axis, size in enumerate(value.shape) if axis not in axes])

    def sum(self, value: Value, axes: Sequence[int]) -> Value:
        return reduce_axes(self.tfl, "sum", value, list(axes), keep=False)

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        if value.shape == tuple(sizes):
            return value
        if sizes.count(None) > 1:
            self.node.unsupported(
                "several open dimensions in one product; fix the input's size with --shape NAME=..."
            )
        return reshape(self.tfl, value, tuple(sizes))

    def gather(self, value: Value, indices: Array, axis: int) -> Value:
        places = self.tfl.int32(indices)
        shape = (*value.shape[:axis], len(indices), *value.shape[axis + 1 :])
        return self.tfl.value(self.tfl.gather(self.tfl.tensor(value), places, axis, shape))

    def matrix(
        self, value: Value, batch: Sequence[Size], rows: Sequence[Size], columns: Sequence[Size]
    ) -> Value:
        return self.reshape(value, [*batch, product(rows), product(columns)])

    def multiply(self, left: Value, right: Value, *, is_outer: bool) -> Value:
        return matmul(self.tfl, left, right)
