"""Graph edits: store tensors, replace a node, remove unused weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.weights.discovery import Weight

# A file of its own for less than this would cost more than it saves.
_LARGE = 2**20  # bytes
# What four bits are called in NumPy; held in a byte each, they are packed when they are written.
_PACKED = {(4, True): ml_dtypes.int4, (4, False): ml_dtypes.uint4}


class Shelf:
    """Makes tensors of arrays."""

    def __init__(self, folder: Path) -> None:
        """`folder` has to outlive the tensors."""
        self._file = folder / "weights.data"

    def numbers(self, array: Array, bits: int) -> ir.TensorProtocol:
        """Store int8 or uint8 integers of `bits` bits."""
        packed = _PACKED.get((bits, array.dtype == np.int8))
        return self.tensor(array if packed is None else array.astype(packed))

    def tensor(self, array: Array) -> ir.TensorProtocol:
        made = ir.tensor(array)
        if made.nbytes < _LARGE:
            return made
        with self._file.open("ab") as file:
            offset = file.tell()
            file.write(made.tobytes())
        return ir.ExternalTensor(
            self._file.name,
            offset,
            made.nbytes,
            made.dtype,
            shape=ir.Shape(array.shape),
            name="",
            base_dir=self._file.parent,
        )


def register(graph: ir.Graph, tensors: Sequence[tuple[str, ir.TensorProtocol]]) -> list[ir.Value]:
    """Register initializers, renamed where the graph has the name already."""
    made = []
    for name, tensor in tensors:
        while name in graph.initializers:
            name += "_"
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        tensor.name = name
        graph.register_initializer(value)
        made.append(value)
    return made


def replace_node(node: ir.Node, made: Sequence[ir.Node]) -> None:
    """Replace `node` by `made`, whose last node gets its output names."""
    graph, last = node.graph, made[-1]
    assert graph is not None, "a node that was found is in a graph"
    for each in made[:-1]:
        for number, value in enumerate(each.outputs):
            value.name = f"{each.name}/{number}" if number else each.name
    graph.insert_before(node, made)
    for old, new in zip(node.outputs, last.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    for old, new in zip(node.outputs, last.outputs, strict=True):
        new.name = old.name


def remove_unused(weight: Weight) -> None:
    """Remove an unused initializer and the Transpose behind it."""
    for mover in {node for node, _ in weight.value.uses()}:
        assert mover.graph is not None
        mover.graph.remove(mover, safe=True)
    del weight.graph.initializers[weight.name]
