"""A dynamically quantized model without its run-time quantization: float activations and de-quantized weights.

    Given   MatMulInteger(DynamicQuantizeLinear(x), w) -> Cast -> Mul(x_scale * w_scale)
    Result  MatMul(x, (w - w_zero_point) * w_scale)

A float artefact of such a model computes this; the source differs from it by the roundings of its activations. The
operators are defined in ONNX (DynamicQuantizeLinear-11, MatMulInteger-10, ConvInteger-10) and in ONNX Runtime's
docs/ContribOperators.md (DynamicQuantizeMatMul, MatMulIntegerToFloat, DynamicQuantizeLSTM).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.samples.value_uses import constant

_MEASURES = "DynamicQuantizeLinear"
# Operators that quantize their inputs when they run, or whose operands were.
DYNAMIC = frozenset(
    "DynamicQuantizeLinear DynamicQuantizeMatMul DynamicQuantizeLSTM MatMulInteger ConvInteger "
    "MatMulIntegerToFloat".split()
)


def in_float_arithmetic(model: Model) -> Model | None:
    """Return a copy of a model without run-time quantization; None where some of it has no known form.

    Args:
        model: without functions.
    """
    copy = model.clone()
    for graph in copy.ir.graphs():
        for node in list(graph):
            rule = _RULES.get(node.op_type)
            if rule is not None:
                rule(graph, node)
    common.RemoveUnusedNodesPass()(copy.ir)
    return None if any(node.op_type in DYNAMIC for node in copy.ir.graph.all_nodes()) else copy


def _floats_of(codes: ir.Value | None, scale: ir.Value | None, zero: ir.Value | None) -> ir.Value | None:
    """Return the floats that DynamicQuantizeLinear made these integers of, with this scale and zero point."""
    node = None if codes is None else codes.producer()
    if node is None or node.op_type != _MEASURES:
        return None
    is_own = all(given is made for given, made in zip((codes, scale, zero), node.outputs, strict=True))
    return node.inputs[0] if is_own else None


def _rewrite_product(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite MatMulInteger or ConvInteger up to the multiplication by both scales."""
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    if source is None or source.op_type != _MEASURES:
        return
    floats = _floats_of(node.inputs[0], source.outputs[1], _optional(node, 2))
    end = _scaling(node, source.outputs[1])
    if floats is None or end is None:
        return
    last, weight_scale, bias = end
    is_matrix = node.op_type == "MatMulInteger"
    weight = _floats_of(node.inputs[1], weight_scale, _optional(node, 3))
    if weight is None:
        codes, step = constant(node.inputs[1]), constant(weight_scale)
        zero = constant(_optional(node, 3))
        if codes is None or step is None or (_optional(node, 3) is not None and zero is None):
            return
        # Scales per channel lie along the last axis of a matrix product, and along the second of a convolution.
        along = -1 if is_matrix else 1 - codes.ndim
        if step.size > 1 and (step.ndim < -along or step.shape[along] != step.size):
            return
        channel = (lambda each: each) if is_matrix else _along_first(codes.ndim)
        weight = add_initializer(
            graph, f"{node.outputs[0].name}.weight", _dequantize(codes, zero, step, channel)
        )
    op, attributes = ("MatMul", {}) if is_matrix else ("Conv", dict(node.attributes))
    if bias is None:
        _replace(graph, last, op, [floats, weight], attributes)
        return
    product = ir.node(op, [floats, weight], attributes)
    product.name = product.outputs[0].name = f"{last.outputs[0].name}.product"
    graph.insert_before(last, product)
    stored = add_initializer(graph, f"{last.outputs[0].name}.bias", bias)
    _replace(graph, last, "Add", [product.outputs[0], stored], {})


def _along_first(rank: int) -> Callable[[Array], Array]:
    """Return what brings numbers per channel to the first of `rank` axes."""
    return lambda each: each.reshape(-1, *[1] * (rank - 1)) if each.size > 1 else each


def _scaling(product: ir.Node, scale: ir.Value) -> tuple[ir.Node, ir.Value, Array | None] | None:
    """Return the Mul behind the product's Cast, the weight's scale that it multiplies `scale` by, and the bias."""
    summed = product.outputs[0]
    codes = None
    if (added := _only_user(summed, "Add")) is not None:
        codes = next(each for each in added.inputs if each is not summed)
        summed = added.outputs[0]
    cast = _only_user(summed, "Cast")
    last = None if cast is None else _only_user(cast.outputs[0], "Mul")
    if cast is None or last is None:
        return None
    scales = next((each for each in last.inputs if each is not cast.outputs[0]), None)
    both = None if scales is None else scales.producer()
    if both is None or both.op_type != "Mul" or scale not in both.inputs:
        return None
    other = next((each for each in both.inputs if each is not scale), None)
    bias = None if added is None else _run_time_bias(codes, scale, other)
    return None if other is None or (added is not None and bias is None) else (last, other, bias)


def _run_time_bias(codes: ir.Value | None, scale: ir.Value, weight_scale: ir.Value | None) -> Array | None:
    """Return b of Reshape(Cast(Floor(b / (x_scale * w_scale)))), which older versions of ONNX Runtime write."""
    nodes: list[ir.Node] = []
    while codes is not None and (node := codes.producer()) is not None and len(nodes) < 4:
        nodes.append(node)
        codes = node.inputs[0]
    reshape = nodes.pop(0) if nodes and nodes[0].op_type == "Reshape" else None
    if [node.op_type for node in nodes] not in (["Cast", "Floor", "Div"], ["Cast", "Round", "Div"]):
        return None
    step = nodes[2].inputs[1]
    both = None if step is None else step.producer()
    bias, known = constant(nodes[2].inputs[0]), constant(weight_scale)
    if both is None or both.op_type != "Mul" or scale not in both.inputs or bias is None:
        return None
    own = constant(next((each for each in both.inputs if each is not scale), None))
    if own is None or known is None or not np.array_equal(own.reshape(-1), known.reshape(-1)):
        return None
    shape = None if reshape is None else constant(reshape.inputs[1])
    return bias if shape is None else bias.reshape([int(each) for each in shape])


def _rewrite_fused(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite DynamicQuantizeMatMul (A, B, B's scale and zero point, bias)."""
    _rewrite_matrix_product(graph, node, node.inputs[0], (1, 2, 3), 4)


def _rewrite_to_float(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite MatMulIntegerToFloat (A, B, A's scale, B's scale, A's and B's zero points, bias)."""
    floats = _floats_of(node.inputs[0], _optional(node, 2), _optional(node, 4))
    _rewrite_matrix_product(graph, node, floats, (1, 3, 5), 6)


def _rewrite_matrix_product(
    graph: ir.Graph, node: ir.Node, floats: ir.Value | None, places: tuple[int, int, int], bias: int
) -> None:
    codes, step, zero = (constant(_optional(node, place)) for place in places)
    if floats is None or codes is None or step is None:
        return
    if zero is None and _optional(node, places[2]) is not None:
        return
    weight = add_initializer(graph, f"{node.outputs[0].name}.weight", _dequantize(codes, zero, step))
    added = _optional(node, bias)
    if added is None:
        _replace(graph, node, "MatMul", [floats, weight], {})
        return
    product = ir.node("MatMul", [floats, weight])
    product.name = product.outputs[0].name = f"{node.outputs[0].name}.product"
    graph.insert_before(node, product)
    _replace(graph, node, "Add", [product.outputs[0], added], {})


def _rewrite_lstm(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite DynamicQuantizeLSTM, whose weights are [directions, inputs, 4 * hidden]: ONNX transposes them."""
    matrices = []
    for place, scales in ((1, 8), (2, 10)):
        codes, step, zero = (constant(_optional(node, each)) for each in (place, scales, scales + 1))
        if codes is None or step is None:
            return
        found = _dequantize(codes, zero, step, lambda each: each.reshape(len(each), 1, -1))
        matrices.append(add_initializer(graph, f"{node.outputs[0].name}.{place}", found.transpose(0, 2, 1)))
    others = [_optional(node, place) for place in range(3, 8)]
    fused = ir.node(
        "LSTM", [node.inputs[0], *matrices, *others], dict(node.attributes), num_outputs=len(node.outputs)
    )
    fused.name = node.name
    graph.insert_before(node, fused)
    for old, new in zip(node.outputs, fused.outputs, strict=True):
        _take_over(old, new)


def _rewrite_dequantization(graph: ir.Graph, node: ir.Node) -> None:
    floats = _floats_of(node.inputs[0], _optional(node, 1), _optional(node, 2))
    if floats is not None:
        _replace(graph, node, "Identity", [floats], {})


def _dequantize(
    codes: Array,
    zero: Array | None,
    step: Array,
    channel: Callable[[Array], Array] = lambda each: each,
) -> Array:
    """Return (codes - zero) * step in float32; `channel` shapes numbers per channel for the broadcast."""
    whole = codes.astype(np.float32)
    if zero is not None:
        whole = whole - channel(zero.astype(np.float32))
    return np.ascontiguousarray(whole * channel(step.astype(np.float32)), np.float32)


def _optional(node: ir.Node, place: int) -> ir.Value | None:
    return node.inputs[place] if place < len(node.inputs) else None


def _only_user(value: ir.Value, op: str) -> ir.Node | None:
    users = value.consumers()
    is_only = len(value.uses()) == 1 and not value.is_graph_output()
    return users[0] if is_only and users[0].op_type == op else None


def _replace(
    graph: ir.Graph, node: ir.Node, op: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
) -> None:
    """Put a node of the operator `op` in the place of a node with one result."""
    new = ir.node(op, inputs, attributes)
    new.name = node.name
    graph.insert_before(node, new)
    _take_over(node.outputs[0], new.outputs[0])


def _take_over(old: ir.Value, new: ir.Value) -> None:
    """Give a value's name, type and readers to another one."""
    name, old.name = old.name, f"{old.name}.quantized"
    new.name, new.type, new.shape = name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)


_RULES: dict[str, Callable[[ir.Graph, ir.Node], None]] = {
    "MatMulInteger": _rewrite_product,
    "ConvInteger": _rewrite_product,
    "DynamicQuantizeMatMul": _rewrite_fused,
    "MatMulIntegerToFloat": _rewrite_to_float,
    "DynamicQuantizeLSTM": _rewrite_lstm,
    "DequantizeLinear": _rewrite_dequantization,
}
