"""Integer products that saturate on no CPU: signed weights of unsigned activations become unsigned.

Kernels of two unsigned operands sum in 32 bits on every CPU, those of uint8 by int8 do not (integer_products.py). So
each such weight becomes uint8, 128 higher, and its zero point too: the same numbers, and the same sums.

    Given   QLinearConv(x: uint8, ..., w: int8, w_scale, w_zero_point = 0, ...)
    Result  QLinearConv(x: uint8, ..., w + 128: uint8, w_scale, w_zero_point = 128, ...)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.runtimes.ort.integer_products import (
    DEQUANTIZE,
    FUSED,
    OFFSET,
    OPERANDS,
    Operands,
    may_saturate,
    to_unsigned,
)

_INT8, _UINT8 = ir.DataType.INT8, ir.DataType.UINT8


def with_unsigned_weights(model: Model, *, in_place: bool = False) -> Model | None:
    """Return `model` with integer products that are exact on every CPU; None where nothing had to change.

    Args:
        in_place: change the model itself instead of a copy, which takes as long as all else here.
    """
    nodes = [node for graph in model.ir.graphs() for node in graph]
    if not any(may_saturate(node.domain, node.op_type) for node in nodes):
        return None
    needs_types = any((node.domain, node.op_type) in OPERANDS for node in nodes)
    if not needs_types and not any(signed for node in nodes for signed in signed_weights(node)):
        return None
    copy = model if in_place else model.clone()
    if needs_types:  # files need not declare those of intermediate values
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(copy.ir)
    if not any(signed for graph in copy.ir.graphs() for node in graph for signed in signed_weights(node)):
        return None
    for graph in copy.ir.graphs():
        for node in list(graph):
            for use in signed_weights(node):
                _make_unsigned(use)
        outputs = set(graph.outputs)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and value not in outputs and value not in graph.inputs:
                del graph.initializers[name]
    return copy


@dataclass(frozen=True)
class SignedWeight:
    """An int8 operand that is multiplied by uint8 activations."""

    node: ir.Node  # its reader: a product, or the DequantizeLinear before one
    # place, zero_point: indices of the node's inputs.
    place: int
    zero_point: int

    @property
    def value(self) -> ir.Value:
        value = self.node.inputs[self.place]
        assert value is not None, "signed_weights gives those that are there"
        return value

    @property
    def constant(self) -> ir.TensorProtocol | None:
        """Its tensor; None for a computed value."""
        return constant_tensor(self.value)


def signed_weights(node: ir.Node) -> Iterator[SignedWeight]:
    """Yield the operands of `node` that saturate with uint8 activations."""
    operands = OPERANDS.get((node.domain, node.op_type))
    if operands is not None:
        if operands.activation is None or _activation_type(node, operands) == _UINT8:
            yield from (
                SignedWeight(node, place, zero)
                for place, zero in operands.weights
                if _element_type(node, place) == _INT8
            )
    elif node.op_type == DEQUANTIZE and _is_fused_weight(node):
        yield SignedWeight(node, 0, 2)


def _is_fused_weight(node: ir.Node) -> bool:
    """Return whether a DequantizeLinear dequantizes int8 weights of a product whose other operand is quantized too."""
    if _element_type(node, 0) != _INT8:
        return False
    if "block_size" in node.attributes and node.attributes["block_size"].as_int():
        return False
    weights = node.inputs[0]
    if weights is None or constant_tensor(weights) is None:
        return False
    return any(
        place == 1 and user.op_type in FUSED and _is_dequantized(user.inputs[0])
        for user, place in node.outputs[0].uses()
    )


def _is_dequantized(value: ir.Value | None) -> bool:
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type == DEQUANTIZE


def _activation_type(node: ir.Node, operands: Operands) -> ir.DataType | None:
    for place in (operands.activation_zero_point, operands.activation):
        if place is not None and (found := _element_type(node, place)) is not None:
            return found
    return None


def _element_type(node: ir.Node, place: int) -> ir.DataType | None:
    """Return the type of an input; None where it is unknown."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        return None
    constant = constant_tensor(value)
    return value.dtype if constant is None else constant.dtype


def _make_unsigned(use: SignedWeight) -> None:
    """Replace a node's weight and zero point by unsigned ones, 128 higher."""
    node = use.node
    zero = node.inputs[use.zero_point] if use.zero_point < len(node.inputs) else None
    shifted = [(use.place, _shift(use.value, node)), (use.zero_point, _zero_point(use, zero))]
    if use.zero_point >= len(node.inputs):
        node.resize_inputs(use.zero_point + 1)
    for place, value in shifted:
        node.replace_input_with(place, value)


def _zero_point(use: SignedWeight, zero: ir.Value | None) -> ir.Value:
    if zero is not None:
        return _shift(zero, use.node)
    shape: tuple[int, ...] = ()
    if use.node.op_type == DEQUANTIZE:  # as many as there are scales
        scale = use.node.inputs[1]
        constant = constant_tensor(scale)
        shape = () if constant is None else tuple(constant.shape.numpy())
    name = f"{use.node.outputs[0].name}/zero_point"
    return _constant(use.node.graph, name, np.full(shape, OFFSET, np.uint8))


def _shift(value: ir.Value, node: ir.Node) -> ir.Value:
    """Return `value` 128 higher, as uint8."""
    constant = constant_tensor(value)
    if constant is not None:
        # In the original's graph: an inner graph must not repeat names of an outer one.
        return _constant(value.graph or node.graph, f"{value.name}/unsigned", to_unsigned(constant.numpy()))
    return _shift_at_run_time(value, node)


def _constant(graph: ir.Graph | ir.Function | None, name: str, values: Array) -> ir.Value:
    """Return the initializer of `graph` with this name; create it at the first call."""
    assert isinstance(graph, ir.Graph), "functions are inlined"
    if name not in graph.initializers:
        add_initializer(graph, name, values)
    return graph.initializers[name]


def _shift_at_run_time(value: ir.Value, node: ir.Node) -> ir.Value:
    """Insert nodes before `node` that shift a computed value."""
    offset = _constant(node.graph, f"{node.outputs[0].name}/128", np.array(OFFSET, np.int32))
    wide = ir.node("Cast", [value], {"to": int(ir.DataType.INT32)})
    moved = ir.node("Add", [wide.outputs[0], offset])
    narrow = ir.node("Cast", [moved.outputs[0]], {"to": int(_UINT8)})
    made = (wide, moved, narrow)
    for number, each in enumerate(made):
        each.name = each.outputs[0].name = (
            f"{node.name or node.outputs[0].name}/{value.name}/unsigned_{number}"
        )
    assert isinstance(node.graph, ir.Graph)
    node.graph.insert_before(node, made)
    return narrow.outputs[0]
