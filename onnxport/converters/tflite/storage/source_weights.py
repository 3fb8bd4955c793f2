"""The weights that a model stores in fewer bits than float32, so that the artefact can do the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.formats.model import Model

# Elements; below this, scales and the operator that applies them cost more than they save.
LEAST = 1024

_BITS = {
    ir.DataType.FLOAT16: 16,
    ir.DataType.BFLOAT16: 16,
    ir.DataType.INT8: 8,
    ir.DataType.UINT8: 8,
    ir.DataType.INT4: 4,
    ir.DataType.UINT4: 4,
}
_MATMUL_N_BITS = ("N", "K", "bits", "block_size")


@dataclass(frozen=True, order=True)
class Stored:
    """A weight in fewer bits."""

    size: int  # number of elements
    bits: int  # 16, 8 or 4
    block: int = 0  # number of elements along an axis that share a scale; 0 for the whole axis


def find_stored_weights(*models: Model) -> frozenset[Stored]:
    """Return the weights that any of the models stores in fewer bits.

    Before preparation a model still has Casts of weights, after it the blocks of quantized ones.
    """
    return frozenset(stored for model in models for stored in _find_stored(model) if stored.size >= LEAST)


def _find_stored(model: Model) -> Iterator[Stored]:
    for graph in model.ir.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.dtype in _BITS:
                yield Stored(value.const_value.size, _BITS[value.dtype])
    for node in model.graph.all_nodes():
        constant = node.attributes.get("value") if node.op_type == "Constant" else None
        if constant is not None and constant.as_tensor().dtype in _BITS:
            yield Stored(constant.as_tensor().size, _BITS[constant.as_tensor().dtype])
        source = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if source is not None and source.const_value is not None and source.dtype in _BITS:
            block = node.attributes.get_int("block_size", 0)
            yield Stored(source.const_value.size, _BITS[source.dtype], block or 0)
        if node.op_type == "MatMulNBits":
            rows, columns, bits, block = (node.attributes.get_int(name, 0) or 0 for name in _MATMUL_N_BITS)
            yield Stored(rows * columns, bits or 4, block)
