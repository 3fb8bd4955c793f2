"""Weights inside com.microsoft's operators, which ONNX Runtime multiplies by as they are stored.

MatMulNBits and GatherBlockQuantized (contrib operators of ONNX Runtime, docs/ContribOperators.md there) hold unsigned
numbers, of which 4 bits lie two to a byte, the first in the lower half. Signed ones are shifted by half their range,
which is the zero point where none is given.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.quantize.weights.dequantizing import register
from onnxport.quantize.weights.encoding import Array, Encoding, blocked
from onnxport.quantize.weights.finding import Use, Weight
from onnxport.quantize.weights.shelf import Shelf

DOMAIN = "com.microsoft"
# The sizes of blocks that ONNX Runtime has kernels for.
BLOCKS = (16, 32, 64, 128, 256)
# Leave for kernels that quantize the activations to int8 in blocks, which is several times faster than to de-quantize.
_ACCURACY_LEVEL = 4
_BYTE, _NIBBLE = 8, 4


def fits(weight: Weight) -> bool:
    """Whether all that read `weight` have such a form: x @ W, or Gemm that adds a bias at most, or a look-up."""
    return weight.is_table or all(_is_plain(use) for use in weight.uses)


def _is_plain(use: Use) -> bool:
    node = use.node
    if node.op_type == "MatMul":
        return use.position == 1 and len(use.order) == 2  # noqa: PLR2004
    scaled = any(node.attributes.get_float(name, 1.0) != 1 for name in ("alpha", "beta"))
    return node.op_type == "Gemm" and use.position == 1 and not scaled and not node.attributes.get_int("transA", 0)


def replace(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Puts `encoding` in the place of `weight` and of the products or look-ups that read it."""
    value = weight.value
    graph = value.graph
    assert graph is not None and value.name is not None
    operands = register(graph, [(f"{value.name}/{name}", shelf.tensor(array)) for name, array in _stored(weight, encoding)])
    for use in weight.uses:
        (_look_up if use.node.op_type == "Gather" else _multiply)(use, weight, encoding, operands)
    for node in {use.node for use in weight.uses}:
        node.graph.remove(node, safe=True)
    for mover in [node for node, _ in value.uses()]:  # a Transpose that nothing reads any more
        mover.graph.remove(mover, safe=True)
    del graph.initializers[value.name]


def _stored(weight: Weight, encoding: Encoding) -> list[tuple[str, Array]]:
    """The operands' names and contents: numbers, scales and maybe zero points."""
    grids, count = encoding.grids, len(encoding.numbers)
    shift = 0 if not grids.symmetric else -grids.lowest
    shifted = (encoding.numbers.astype(np.int16) + shift).astype(np.uint8)
    if not weight.is_table:
        # The last block of a row is filled up with what stands for 0.
        zeros = encoding.zero_points.astype(np.int16) + shift
        missing = -shifted.shape[1] % grids.block
        if missing:
            shifted = np.hstack([shifted, np.repeat(zeros[:, -1:].astype(np.uint8), missing, axis=1)])
    numbers = _packed(shifted, grids.bits)
    if not weight.is_table:
        numbers = numbers.reshape(count, -1, grids.block * grids.bits // _BYTE)
    found = [(f"int{grids.bits}", numbers), ("scale", encoding.scales.astype(weight.dtype.numpy()))]
    if not grids.symmetric:
        found.append(("zero_point", _packed(encoding.zero_points.astype(np.uint8), grids.bits)))
    return found


def _packed(numbers: Array, bits: int) -> Array:
    """[rows, n] uint8 of `bits` bits each in [rows, bytes]."""
    if bits == _BYTE:
        return numbers
    even = blocked(numbers, 2) if numbers.shape[1] % 2 == 0 else blocked(np.pad(numbers, ((0, 0), (0, 1))), 2)
    return (even[:, 0] | (even[:, 1] << _NIBBLE)).reshape(len(numbers), -1)


def _multiply(use: Use, weight: Weight, encoding: Encoding, operands: list[ir.Value]) -> None:
    node, grids = use.node, encoding.grids
    rows, n = encoding.numbers.shape
    attributes = {"K": n, "N": rows, "bits": grids.bits, "block_size": grids.block, "accuracy_level": _ACCURACY_LEVEL}
    product = ir.node("MatMulNBits", [node.inputs[0], *operands], attributes, domain=DOMAIN, name=node.name)
    made = [product]
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 Gemm's C
    if bias is not None:
        product.outputs[0].name = f"{node.outputs[0].name}/product"
        made.append(ir.node("Add", [product.outputs[0], bias], name=f"{node.name}/bias"))
    _take_over(node, made)


def _look_up(use: Use, weight: Weight, encoding: Encoding, operands: list[ir.Value]) -> None:
    node, grids = use.node, encoding.grids
    attributes = {"bits": grids.bits, "block_size": grids.block, "gather_axis": 0, "quantize_axis": 1}
    numbers, scales, *zero_points = operands
    look_up = ir.node(
        "GatherBlockQuantized", [numbers, node.inputs[1], scales, *zero_points], attributes, domain=DOMAIN, name=node.name
    )
    _take_over(node, [look_up])


def _take_over(node: ir.Node, made: list[ir.Node]) -> None:
    """Has `made` give, under its name, what `node` gave."""
    graph, old, new = node.graph, node.outputs[0], made[-1].outputs[0]
    assert graph is not None
    new.type, new.shape = old.type, old.shape
    graph.insert_before(node, made)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name, old.name = old.name, f"{old.name}/replaced"
