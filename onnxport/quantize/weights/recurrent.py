"""LSTM layers with 8-bit weights: com.microsoft's DynamicQuantizeLSTM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.quantize.weights import rtn
from onnxport.quantize.weights.discovery import Weight
from onnxport.quantize.weights.encoding import Grids
from onnxport.quantize.weights.graph_edits import Shelf, register, remove_unused, replace_node

DOMAIN = "com.microsoft"
Layers = dict[ir.Node, tuple[Weight, Weight]]
_OPERANDS = 8  # of ONNX's LSTM: X, W, R, B, sequence_lens, initial_h, initial_c, P


def find_layers(weights: Sequence[Weight]) -> Layers:
    """Return the LSTM layers that have such a form, with their input and state weights."""
    of_node: dict[ir.Node, dict[int, Weight]] = {}
    for weight in weights:
        use, *others = weight.uses
        if use.node.op_type == "LSTM" and not others and weight.dtype == ir.DataType.FLOAT:
            of_node.setdefault(use.node, {})[use.position] = weight
    both = {node: (found[1], found[2]) for node, found in of_node.items() if len(found) == 2}
    return {node: pair for node, pair in both.items() if not node.attributes.get_int("layout", 0)}


def replace(node: ir.Node, pair: tuple[Weight, Weight], bits: int, shelf: Shelf) -> None:
    """Replace the layer `node` by DynamicQuantizeLSTM."""
    numbers, scaling = [], list[ir.Value | None]()
    for weight in pair:
        directions, gates, _ = weight.layout.shape
        encoding = rtn.round_nearest(weight.rows(), Grids(bits, weight.layout.row, symmetric=True))
        # The operator has the gates last, and insists on zero points.
        stored = encoding.numbers.reshape(weight.layout.shape).transpose(0, 2, 1)
        tensors = {
            "int8": np.ascontiguousarray(stored),
            "scale": encoding.scales.reshape(directions, gates),
            "zero_point": np.zeros((directions, gates), np.int8),
        }
        number, *rest = register(
            weight.graph, [(f"{weight.name}/{kind}", shelf.tensor(array)) for kind, array in tensors.items()]
        )
        numbers.append(number)
        scaling += rest
    operands = [*node.inputs, *[None] * (_OPERANDS - len(node.inputs))]
    attributes = {name: each for name, each in node.attributes.items() if name != "layout"}
    made = ir.node(
        "DynamicQuantizeLSTM",
        [operands[0], *numbers, *operands[3:], *scaling],
        domain=DOMAIN,
        name=node.name,
        num_outputs=len(node.outputs),
    )
    made.attributes.update(attributes)
    replace_node(node, [made])
    for weight in pair:
        remove_unused(weight)
