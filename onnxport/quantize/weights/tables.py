"""Tables that rows are looked up in, a byte an element: only the rows that are looked up become floats.

DequantizeLinear in front of the Gather would make floats of the whole table in every run.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.quantize.weights.dequantizing import register
from onnxport.quantize.weights.encoding import Encoding
from onnxport.quantize.weights.finding import Weight
from onnxport.quantize.weights.shelf import Shelf


def look_up(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Stores the table `weight` as `encoding`, which has one scale a row and no zero points, in place."""
    value = weight.value
    graph = value.graph
    assert graph is not None and value.name is not None
    tensors = [
        (f"{value.name}/int8", shelf.numbers(encoding.numbers, 8)),
        (f"{value.name}/scale", shelf.tensor(encoding.scales.astype(weight.dtype.numpy()))),
    ]
    numbers, scales = register(graph, tensors)
    for use in weight.uses:
        _replace(use.node, numbers, scales, weight.dtype)
    for mover in [node for node, _ in value.uses()]:
        assert mover.graph is not None
        mover.graph.remove(mover, safe=True)
    del graph.initializers[value.name]


def _replace(node: ir.Node, numbers: ir.Value, scales: ir.Value, dtype: ir.DataType) -> None:
    """Gathers numbers and scales instead of rows, and multiplies them."""
    result, graph = node.outputs[0], node.graph
    assert graph is not None
    made = []
    for table, kind in ((numbers, "int8"), (scales, "scale")):
        made.append(ir.node("Gather", [table, node.inputs[1]], {"axis": 0}, name=f"{node.name}/{kind}"))
    made.append(ir.node("Cast", [made[0].outputs[0]], {"to": int(dtype)}, name=f"{node.name}/cast"))
    for each in made:
        each.outputs[0].name = each.name
    product = ir.node("Mul", [made[2].outputs[0], made[1].outputs[0]], name=node.name)
    given = product.outputs[0]
    given.type, given.shape = result.type, result.shape
    graph.insert_before(node, [*made, product])
    result.replace_all_uses_with(given, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    given.name = result.name
