"""Weights inside com.microsoft's operators, which ONNX Runtime multiplies as they are stored.

MatMulNBits and GatherBlockQuantized (ONNX Runtime, docs/ContribOperators.md) hold unsigned numbers, of which 4 bits lie
two to a byte, the first in the lower half. Signed ones are shifted by half their range, the default zero point.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.weights.discovery import Use, Weight
from onnxport.quantize.weights.encoding import Encoding, split_blocks
from onnxport.quantize.weights.graph_edits import Shelf, register, remove_unused, replace_node

DOMAIN = "com.microsoft"
# Leave for kernels that quantize the activations to int8 in blocks, which is several times faster than to de-quantize.
_ACCURACY_LEVEL = 4
_BYTE, _NIBBLE = 8, 4


def fits(weight: Weight) -> bool:
    """Return whether all readers of `weight` have such a form."""
    return weight.is_table or all(use.is_plain_product for use in weight.uses)


def replace(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Replace `weight` and the products or look-ups that read it by `encoding`."""
    tensors = [(f"{weight.name}/{kind}", shelf.tensor(array)) for kind, array in _operands(weight, encoding)]
    operands = register(weight.graph, tensors)
    for use in weight.uses:
        made = _look_up if use.node.op_type == "Gather" else _multiply
        replace_node(use.node, made(use, encoding, operands))
    remove_unused(weight)


def _operands(weight: Weight, encoding: Encoding) -> list[tuple[str, Array]]:
    """Return the operands' names and contents: integers, scales and possibly zero points."""
    grids, count = encoding.grids, len(encoding.numbers)
    shift = 0 if not grids.symmetric else -grids.lowest
    shifted = (encoding.numbers.astype(np.int16) + shift).astype(np.uint8)
    if not weight.is_table:
        # The last block of a row is filled up with what stands for 0.
        zeros = encoding.zero_points.astype(np.int16) + shift
        missing = -shifted.shape[1] % grids.block
        if missing:
            shifted = np.hstack([shifted, np.repeat(zeros[:, -1:].astype(np.uint8), missing, axis=1)])
    numbers = _pack(shifted, grids.bits)
    if not weight.is_table:
        numbers = numbers.reshape(count, -1, grids.block * grids.bits // _BYTE)
    found = [(f"int{grids.bits}", numbers), ("scale", encoding.scales.astype(weight.dtype.numpy()))]
    if not grids.symmetric:
        found.append(("zero_point", _pack(encoding.zero_points.astype(np.uint8), grids.bits)))
    return found


def _pack(numbers: Array, bits: int) -> Array:
    """Pack [rows, n] uint8 of `bits` bits each into [rows, bytes]."""
    if bits == _BYTE:
        return numbers
    even = split_blocks(numbers, 2)
    packed: Array = even[:, 0] | (even[:, 1] << _NIBBLE)
    return packed.reshape(len(numbers), -1)


def _multiply(use: Use, encoding: Encoding, operands: list[ir.Value]) -> list[ir.Node]:
    grids, (rows, n) = encoding.grids, encoding.numbers.shape
    sizes = {"K": n, "N": rows, "bits": grids.bits, "block_size": grids.block}
    attributes = {**sizes, "accuracy_level": _ACCURACY_LEVEL}
    node, bias = use.node, use.bias
    name = node.name if bias is None else f"{node.name}/product"
    product = ir.node("MatMulNBits", [node.inputs[0], *operands], attributes, domain=DOMAIN, name=name)
    if bias is None:
        return [product]
    return [product, ir.node("Add", [product.outputs[0], bias], name=node.name)]


def _look_up(use: Use, encoding: Encoding, operands: list[ir.Value]) -> list[ir.Node]:
    node, grids = use.node, encoding.grids
    attributes = {"bits": grids.bits, "block_size": grids.block, "gather_axis": 0, "quantize_axis": 1}
    numbers, *scaling = operands
    inputs = [numbers, node.inputs[1], *scaling]
    return [ir.node("GatherBlockQuantized", inputs, attributes, domain=DOMAIN, name=node.name)]
