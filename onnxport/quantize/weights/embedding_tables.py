"""Embedding tables with one byte an element: only the rows that are looked up become floats.

DequantizeLinear in front of the Gather would make floats of the whole table in every run.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.quantize.weights.discovery import Weight
from onnxport.quantize.weights.encoding import Encoding
from onnxport.quantize.weights.graph_edits import register, remove_unused, replace_node
from onnxport.quantize.weights.shelf import Shelf


def store_table(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Store the table `weight` as `encoding`, which has one scale a row and no zero points, in place."""
    tensors = [
        (f"{weight.name}/int8", shelf.numbers(encoding.numbers, 8)),
        (f"{weight.name}/scale", shelf.tensor(encoding.scales.astype(weight.dtype.numpy()))),
    ]
    numbers, scales = register(weight.graph, tensors)
    for use in weight.uses:
        _replace(use.node, numbers, scales, weight.dtype)
    remove_unused(weight)


def _replace(node: ir.Node, numbers: ir.Value, scales: ir.Value, dtype: ir.DataType) -> None:
    """Gather integers and scales instead of rows, and multiply them."""
    rows, factors = (
        ir.node("Gather", [table, node.inputs[1]], {"axis": 0}, name=f"{node.name}/{kind}")
        for table, kind in ((numbers, "int8"), (scales, "scale"))
    )
    floats = ir.node("Cast", [rows.outputs[0]], {"to": int(dtype)}, name=f"{node.name}/cast")
    product = ir.node("Mul", [floats.outputs[0], factors.outputs[0]], name=node.name)
    replace_node(node, [rows, factors, floats, product])
