"""BatchNormalization with parameters that float16 holds.

Variances of 1e-9 and of 1e6 are common, but scale and shift are of common sizes. They are folded into a Conv
without other readers before its weights are rounded; elsewhere they become the operator's scale and bias, with mean
0 and variance 1.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.samples.value_uses import constant


def fold_batch_norms(model: ir.Model) -> None:
    """Fold or rescale, in place, the nodes whose four parameters are constants."""
    for graph in model.graphs():
        for node in [each for each in graph if each.op_type == "BatchNormalization"]:
            found = _scale_and_bias(node)
            if found is not None and not _fold(graph, node, *found):
                factor, shift = found
                # The operator adds its epsilon to the variance of 1, too.
                scale = factor * np.sqrt(1 + node.attributes.get_float("epsilon", 1e-5))
                numbers = {
                    "scale": scale,
                    "bias": shift,
                    "mean": np.zeros_like(shift),
                    "variance": np.ones_like(shift),
                }
                for position, (role, each) in enumerate(numbers.items(), 1):
                    _replace(graph, node, position, f"{node.outputs[0].name}/{role}", each)


def _scale_and_bias(node: ir.Node) -> tuple[Array, Array] | None:
    """Return float64 factor and shift [C] of the node; None where they are computed, or beyond float32."""
    operands = [constant(value) for value in node.inputs[1:5]]
    trains = node.attributes.get_int("training_mode", 0) or any(value.name for value in node.outputs[1:])
    if trains or any(each is None or each.dtype != np.float32 for each in operands):
        return None
    scale, bias, mean, variance = (np.asarray(each, np.float64) for each in operands)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        shift = bias - mean * factor
    most = np.finfo(np.float32).max
    return (factor, shift) if np.all(np.abs(factor) < most) and np.all(np.abs(shift) < most) else None


def _fold(graph: ir.Graph, node: ir.Node, factor: Array, shift: Array) -> bool:
    """Fold the node into the Conv before it; return False if there is none or it has other readers."""
    source = node.inputs[0]
    conv = None if source is None else source.producer()
    if source is None or conv is None or conv.op_type != "Conv":
        return False
    if len(source.uses()) > 1 or source.is_graph_output():
        return False
    weights = constant(conv.inputs[1])
    bias = constant(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] is not None else np.zeros(1)
    if weights is None or bias is None or weights.dtype != np.float32 or conv.graph is not graph:
        return False
    scaled = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    result = node.outputs[0]
    conv.resize_inputs(3)
    _replace(graph, conv, 1, f"{result.name}/weights", scaled)
    _replace(graph, conv, 2, f"{result.name}/bias", bias * factor + shift)
    name, shape, kind = result.name, result.shape, result.type
    result.name = f"{name}/folded"
    result.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    source.name, source.shape, source.type = name, shape, kind
    return True


def _replace(graph: ir.Graph, node: ir.Node, position: int, name: str, numbers: Array) -> None:
    tensor = ir.tensor(numbers.astype(np.float32), name=name)
    value = ir.val(name, const_value=tensor)
    graph.register_initializer(value)
    node.replace_input_with(position, value)
