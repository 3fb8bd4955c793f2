"""Run-time quantization taken out of a model: float activations, weights as they are stored.

    Given   MatMulInteger(DynamicQuantizeLinear(x), w) -> Cast -> Mul(x_scale * w_scale)
    Result  MatMul(x, DequantizeLinear(w, w_scale, w_zero_point))

TFLite and Core ML have no operator that measures a range and multiplies integers; written with many small ones it is
slow, and loses more than float activations do. The operators are defined in ONNX (DynamicQuantizeLinear-11,
MatMulInteger-10, ConvInteger-10) and in ONNX Runtime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import array, only_use, producer

_MICROSOFT = "com.microsoft"


def take_out_dynamic_quantization(model: Model) -> bool:
    """Rewrite the operators of this module in all graphs; return whether there were any.

    Keeps: a product whose scales are multiplied in another way, or whose weights' scale is computed.
    """
    found = False
    for graph in model.ir.graphs():
        for node in list(graph):
            rule = _RULES.get((node.domain, node.op_type))
            if rule is not None:
                rule(graph, node)
                found = True
    return found


class _Weights(NamedTuple):
    """Stored integers with their scale and zero point, each one number or one per channel."""

    codes: ir.Value
    scale: Array
    zero_point: Array | None


def _rewrite_dequantization(graph: ir.Graph, node: ir.Node) -> None:
    floats = _floats_of(node.inputs[0], node.inputs[1], _operand(node, 2))
    if floats is not None:
        node.outputs[0].replace_all_uses_with(floats, replace_graph_outputs=False)


def _rewrite_product(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite MatMulInteger or ConvInteger whose data DynamicQuantizeLinear measured."""
    source = producer(node.inputs[0], "DynamicQuantizeLinear")
    end = None if source is None else _last_of(node, source.outputs[1])
    if source is None or end is None or _operand(node, 2) is not source.outputs[2]:
        return
    last, scale, bias = end
    is_matrix = node.op_type == "MatMulInteger"
    second = _floats_of(node.inputs[1], scale, _operand(node, 3))
    if second is None:
        weights = _weights(node.inputs[1], scale, _operand(node, 3))
        if weights is None or not _is_per_channel(weights.scale, weights.codes, is_matrix):
            return
        second = _insert_dequantize(graph, last, weights, -1 if is_matrix else 0)
    attributes = {} if is_matrix else dict(node.attributes)
    op = "MatMul" if is_matrix else "Conv"
    floats = ir.node(op, [source.inputs[0], second], attributes, name=last.name)
    if bias is None:
        _put_in_place(graph, last, floats)
        return
    _insert_product(graph, last, floats)
    stored = add_initializer(graph, f"{last.outputs[0].name}.bias", bias)
    _put_in_place(graph, last, ir.node("Add", [floats.outputs[0], stored]))


def _last_of(product: ir.Node, scale: ir.Value) -> tuple[ir.Node, ir.Value, Array | None] | None:
    """Return the Mul that ends the pattern, the weights' scale, which it multiplies `scale` by, and the bias."""
    value = product.outputs[0]
    added = _reader(value, "Add")
    codes = None if added is None else _beside(added, value)
    if added is not None:
        value = added.outputs[0]
    cast = _reader(value, "Cast")
    last = None if cast is None else _reader(cast.outputs[0], "Mul")
    if cast is None or last is None:
        return None
    both = producer(_beside(last, cast.outputs[0]), "Mul")
    other = None if both is None or scale not in both.inputs else _beside(both, scale)
    if other is None or added is None:
        return None if other is None else (last, other, None)
    bias = _bias(codes, scale, other)
    return None if bias is None else (last, other, bias)


def _is_per_channel(scale: Array, codes: ir.Value, is_matrix: bool) -> bool:
    """Return whether scales lie along the result's channels: the last axis of a product, the second of a Conv."""
    if scale.size == 1:
        return True
    axis = -1 if is_matrix else 1 - len(codes.shape or ())
    return scale.ndim >= -axis and scale.shape[axis] == scale.size


def _bias(value: ir.Value | None, scale: ir.Value, weight_scale: ir.Value) -> Array | None:
    """Return the floats of a bias that is rounded to the product's scale in every run (older ONNX Runtime)."""
    shape = None
    if (reshape := producer(value, "Reshape")) is not None:
        shape, value = array(reshape.inputs[1]), reshape.inputs[0]
    for ops in (("Cast",), ("Floor", "Round")):
        node = producer(value, *ops)
        if node is None:
            return None
        value = node.inputs[0]
    quotient = producer(value, "Div")
    both = None if quotient is None else producer(quotient.inputs[1], "Mul")
    if quotient is None or both is None or scale not in both.inputs:
        return None
    own, known = array(_beside(both, scale)), array(weight_scale)
    if own is None or known is None or not np.array_equal(own.reshape(-1), known.reshape(-1)):
        return None
    floats = array(quotient.inputs[0])
    return floats if floats is None or shape is None else floats.reshape([int(each) for each in shape])


def _rewrite_fused(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite DynamicQuantizeMatMul (A, B, B's scale, B's zero point, bias)."""
    _rewrite_matrix_product(graph, node, node.inputs[0], (1, 2, 3), 4)


def _rewrite_to_float(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite MatMulIntegerToFloat (A, B, A's scale, B's scale, A's and B's zero points, bias)."""
    floats = _floats_of(node.inputs[0], _operand(node, 2), _operand(node, 4))
    _rewrite_matrix_product(graph, node, floats, (1, 3, 5), 6)


def _rewrite_matrix_product(
    graph: ir.Graph, node: ir.Node, data: ir.Value | None, places: tuple[int, int, int], bias: int
) -> None:
    weights = _weights(*(_operand(node, place) for place in places))
    if data is None or weights is None:
        return
    product = ir.node("MatMul", [data, _insert_dequantize(graph, node, weights, -1)], name=node.name)
    added = _operand(node, bias)
    if added is None:
        _put_in_place(graph, node, product)
        return
    _insert_product(graph, node, product)
    _put_in_place(graph, node, ir.node("Add", [product.outputs[0], added]))


def _insert_product(graph: ir.Graph, place: ir.Node, product: ir.Node) -> None:
    """Insert a product before the node whose result it is without its bias."""
    result = product.outputs[0]
    result.name = f"{place.outputs[0].name}.product"
    result.shape, result.type = place.outputs[0].shape, place.outputs[0].type
    graph.insert_before(place, product)


def _rewrite_lstm(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite DynamicQuantizeLSTM, whose weights are [directions, inputs, 4 * hidden]; ONNX transposes them."""
    matrices = []
    for place, scale in ((1, 8), (2, 10)):
        weights = _weights(*(_operand(node, each) for each in (place, scale, scale + 1)))
        if weights is None or (weights.scale.ndim == 2 and len(weights.scale) > 1):
            return  # DequantizeLinear has no scale per direction and channel
        # One scale per direction, or per channel of the only direction.
        axis = 2 if weights.scale.ndim == 2 else 0
        floats = _insert_dequantize(graph, node, weights, axis)
        turned = ir.node("Transpose", [floats], {"perm": [0, 2, 1]})
        turned.outputs[0].name = f"{node.name or node.outputs[0].name}.weights.{place}"
        turned.outputs[0].type = floats.type
        graph.insert_before(node, turned)
        matrices.append(turned.outputs[0])
    inputs = [node.inputs[0], *matrices, *(_operand(node, place) for place in range(3, 8))]
    count = len(node.outputs)
    _put_in_place(
        graph, node, ir.node("LSTM", inputs, dict(node.attributes), num_outputs=count, name=node.name)
    )


def _weights(codes: ir.Value | None, scale: ir.Value | None, zero_point: ir.Value | None) -> _Weights | None:
    """Return constant weights; None where any of them is computed."""
    step, zero = array(scale), array(zero_point)
    if codes is None or array(codes) is None or step is None or (zero is None and zero_point is not None):
        return None
    return _Weights(codes, step.astype(np.float32), zero)


def _insert_dequantize(graph: ir.Graph, place: ir.Node, weights: _Weights, axis: int) -> ir.Value:
    codes, scale, zero = weights
    is_wide = scale.size > 1 or (zero is not None and zero.size > 1)
    shape = (max(scale.size, 1 if zero is None else zero.size),) if is_wide else ()
    name = f"{codes.name}.{place.name or place.outputs[0].name}"
    inputs = [
        codes,
        add_initializer(graph, f"{name}.scale", np.broadcast_to(scale.reshape(-1 if is_wide else ()), shape)),
    ]
    if zero is not None:
        inputs.append(
            add_initializer(
                graph, f"{name}.zero", np.broadcast_to(zero.reshape(-1 if is_wide else ()), shape)
            )
        )
    rank = len(codes.shape) if codes.shape is not None else 2
    node = ir.node("DequantizeLinear", inputs, {"axis": axis % rank} if is_wide else {})
    floats = node.outputs[0]
    floats.name, floats.shape, floats.type = f"{name}.floats", codes.shape, ir.TensorType(ir.DataType.FLOAT)
    graph.insert_before(place, node)
    return floats


def _put_in_place(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    """Insert a node whose results take the names and readers of another's."""
    graph.insert_before(old, new)
    for before, after in zip(old.outputs, new.outputs, strict=True):
        name, before.name = before.name, f"{before.name}.quantized" if before.name else before.name
        after.name, after.shape, after.type = name, before.shape, before.type
        before.replace_all_uses_with(after, replace_graph_outputs=True)


def _floats_of(
    codes: ir.Value | None, scale: ir.Value | None, zero_point: ir.Value | None
) -> ir.Value | None:
    """Return the floats that DynamicQuantizeLinear made integers of, if scale and zero point are its own."""
    node = producer(codes, "DynamicQuantizeLinear")
    if node is None or [codes, scale, zero_point] != list(node.outputs):
        return None
    return node.inputs[0]


def _operand(node: ir.Node, place: int) -> ir.Value | None:
    return node.inputs[place] if place < len(node.inputs) else None


def _reader(value: ir.Value, op: str) -> ir.Node | None:
    """Return the only reader of a value if it is this operator."""
    reader = value.consumers()[0] if only_use(value) else None
    return reader if reader is not None and reader.domain == "" and reader.op_type == op else None


def _beside(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Return the other operand of a node with two."""
    others: Sequence[ir.Value | None] = [each for each in node.inputs if each is not value]
    return others[0] if len(others) == 1 else None


_RULES: dict[tuple[str, str], Callable[[ir.Graph, ir.Node], None]] = {
    ("", "DequantizeLinear"): _rewrite_dequantization,
    ("", "MatMulInteger"): _rewrite_product,
    ("", "ConvInteger"): _rewrite_product,
    (_MICROSOFT, "DynamicQuantizeMatMul"): _rewrite_fused,
    (_MICROSOFT, "MatMulIntegerToFloat"): _rewrite_to_float,
    (_MICROSOFT, "DynamicQuantizeLSTM"): _rewrite_lstm,
}
