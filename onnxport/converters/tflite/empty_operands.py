"""Operands that may come to have no elements at run time, for kernels of XNNPACK that fail on none.

No box found, no element selected: a size that the data decides can be 0. XNNPACK then fails to reshape a product of
matrices, and gives a convolution or a maximum over windows a wrong size (ai-edge-litert 2.3.0). So such operands get
an element of zeros, and the result loses it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import compress

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.patterns import array, is_op

# Ops with results of a size that the data decides.
_COUNT = frozenset("Compress NonMaxSuppression NonZero Unique".split())


def pad_empty_operands(model: Model) -> None:
    """Give each operand that may be empty an element of zeros where its kernel needs one, outside inner graphs."""
    graph = model.ir.graph
    given = {size for value in graph.inputs for size in dims_of(value) if isinstance(size, str)}
    counted: set[ir.Value] = set()
    guard = _Guard(graph, counted, given)
    for node in list(graph):
        if node.op_type in _COUNT or any(value in counted for value in node.inputs):
            counted.update(value for value in node.outputs if not _is_fixed(value))
        if is_op(node, "Conv", "MaxPool"):
            guard.windows(node)
        elif is_op(node, "MatMul"):
            guard.product(node)


def _is_fixed(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(size, int) for size in dims_of(value))


class _Guard:
    """Adds and removes elements around nodes.

    Args:
        counted: values with a size that the data decides.
        given: names of sizes that the inputs decide.
    """

    def __init__(self, graph: ir.Graph, counted: Collection[ir.Value], given: Collection[str]) -> None:
        self.graph, self.counted, self.given = graph, counted, given

    def windows(self, node: ir.Node) -> None:
        # Behind DequantizeLinear the kernel takes the integers, which a padding would hide.
        if self._may_be_empty(node, 0, 0) and not is_op(_operand(node, 0).producer(), "DequantizeLinear"):
            self._pad(node, 0, [0])
            self._crop(node, [0])

    def product(self, node: ir.Node) -> None:
        """Guard a product of matrices; constant ones are weights of a kernel that takes no rows."""
        if array(_operand(node, 1)) is not None or any(len(dims_of(_operand(node, i))) < 2 for i in (0, 1)):
            return
        rows, columns = self._may_be_empty(node, 0, -2), self._may_be_empty(node, 1, -1)
        inner = self._may_be_empty(node, 0, -1) or self._may_be_empty(node, 1, -2)
        self._pad(node, 0, list(compress([-2, -1], [rows, inner])))
        self._pad(node, 1, list(compress([-2, -1], [inner, columns])))
        self._crop(node, list(compress([-2, -1], [rows, columns])))

    def _may_be_empty(self, node: ir.Node, index: int, axis: int) -> bool:
        value = _operand(node, index)
        if value not in self.counted or value.shape is None:
            return False
        size = dims_of(value)[axis]
        return not isinstance(size, int) and size not in self.given

    def _pad(self, node: ir.Node, index: int, axes: Collection[int]) -> None:
        """Give an operand one more element of zeros at the end of `axes`."""
        value = _operand(node, index)
        if not axes or value.shape is None:
            return
        rank, name = len(value.shape), f"{node.outputs[0].name}/operand{index}"
        amounts = np.zeros(2 * rank, np.int64)
        amounts[[rank + axis % rank for axis in axes]] = 1
        pad = ir.node("Pad", [value, add_initializer(self.graph, f"{name}.pads", amounts)], name=name)
        _describe(pad.outputs[0], name, value, axes)
        self.graph.insert_before(node, pad)
        node.replace_input_with(index, pad.outputs[0])

    def _crop(self, node: ir.Node, axes: Collection[int]) -> None:
        """Cut the last element off `axes` of the result, which keeps its name."""
        if not axes:
            return
        result, name = node.outputs[0], node.outputs[0].name
        bounds = [
            add_initializer(self.graph, f"{name}/cropped.{word}", np.array(numbers, np.int64))
            for word, numbers in (("starts", [0] * len(axes)), ("ends", [-1] * len(axes)), ("axes", [*axes]))
        ]
        crop = ir.node("Slice", [None, *bounds], name=f"{name}/cropped")
        _describe(result, f"{name}/padded", result, axes)
        result.replace_all_uses_with(crop.outputs[0], replace_graph_outputs=True)
        _describe(crop.outputs[0], name, result, ())
        crop.replace_input_with(0, result)
        self.graph.insert_after(node, crop)


def _operand(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _describe(value: ir.Value, name: str | None, other: ir.Value, axes: Iterable[int]) -> None:
    """Name `value`, with the type of `other` and its sizes, those of `axes` open."""
    assert other.shape is not None
    rank = len(other.shape)
    changed = {axis % rank for axis in axes}
    value.name, value.type = name, other.type
    value.shape = ir.Shape([None if axis in changed else size for axis, size in enumerate(other.shape)])
