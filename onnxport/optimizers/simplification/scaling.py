"""Scales by one number folded into a weight near by.

Between the two may lie views, Transpose, another Mul, and the Add of a constant, which is scaled too. A weight
written out as Mul(Cast(integers), scales) takes the factor into its scales.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.patterns import array, is_op, number, only_use, producer
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, simplification
from onnxport.optimizers.simplification.products import scalable_weight

_TRANSPARENT = ("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_STEPS = 6
Change = Callable[[], None]


@simplification("fold-scales")
def fold_scales(editor: ModelEditor) -> int:
    """Fold a Mul or Div by one number into the weight of the MatMul, Gemm or Conv before or behind it, through
    views, Transpose, Mul and the Add of a constant.

    Keeps: A path or a weight with other readers, quantized weights, and types other than float32 and float64.
    """
    return sum(_fold(editor, node) for node in editor.nodes("Mul", "Div"))


def _fold(editor: ModelEditor, node: ir.Node) -> int:
    data, factor = _split_scale(node)
    if data is None or factor is None or not np.isfinite(factor) or factor in (0, 1):
        return 0
    changes = _upward(editor, data, factor) or _downward(editor, node.outputs[0], factor)
    if changes is None or not bypass(node, data):
        return 0
    for change in changes:
        change()
    return 1


def _split_scale(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """Return the operand and the factor of a Mul or Div by one number."""
    first, second = node.inputs
    if node.outputs[0].dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None, None
    data, factor = (first, number(second)) if number(second) is not None else (second, number(first))
    if data is None or data.shape is None or data.const_value is not None:
        return None, None
    constant = node.inputs[1] if data is first else node.inputs[0]
    if constant is None or constant.shape is None or len(constant.shape) > len(data.shape):
        return None, None
    if node.op_type == "Div":
        return (data, 1 / factor) if data is first and factor else (None, None)
    return data, factor


def _upward(editor: ModelEditor, value: ir.Value, factor: float) -> list[Change] | None:
    """Return the changes that scale the weight of the product behind which the value lies."""
    changes: list[Change] = []
    current: ir.Value | None = value
    for _ in range(_STEPS):
        node = producer(current)
        if node is None or not only_use(current):
            return None
        if node.op_type in _TRANSPARENT:
            current = node.inputs[0]
        elif node.op_type == "Add":
            constants = [index for index, each in enumerate(node.inputs) if array(each) is not None]
            if len(constants) != 1:
                return None
            changes.append(_scale_constant(editor, node, constants[0], factor))
            current = node.inputs[1 - constants[0]]
        elif node.op_type in ("Conv", "Gemm", "MatMul"):
            found = _weight(editor, node, factor)
            if found is None or len(node.inputs) > 2:
                return None  # a bias of its own: fold-into-products knows how
            return [*changes, found]
        else:
            return None
    return None


def _downward(editor: ModelEditor, value: ir.Value, factor: float) -> list[Change] | None:
    """Return the changes that scale the weight of the product that reads the value."""
    for _ in range(_STEPS):
        if not only_use(value):
            return None
        ((node, index),) = value.uses()
        if is_op(node, "Conv", "Gemm", "MatMul") and index == 0:
            change = _weight(editor, node, factor)
            return None if change is None else [change]
        if not is_op(node, *_TRANSPARENT, "Mul") or (index and node.op_type != "Mul"):
            return None
        value = node.outputs[0]
    return None


def _weight(editor: ModelEditor, product: ir.Node, factor: float) -> Change | None:
    """Return the change that scales a product's weight; None if that is no constant of its own."""
    decoded = producer(product.inputs[1], "Mul")
    if decoded is None or not only_use(product.inputs[1]):
        return None if scalable_weight(product) is None else _scale_constant(editor, product, 1, factor)
    for index, each in enumerate(decoded.inputs):
        if array(each) is not None and producer(decoded.inputs[1 - index], "Cast") is not None:
            return _scale_constant(editor, decoded, index, factor)
    return None


def _scale_constant(editor: ModelEditor, node: ir.Node, index: int, factor: float) -> Change:
    def change() -> None:
        old = node.inputs[index]
        values = array(old)
        assert old is not None
        assert values is not None
        scaled = (values.astype(np.float64) * factor).astype(values.dtype)
        node.replace_input_with(index, editor.constant(node, scaled, f"{old.name}.scaled"))

    return change
