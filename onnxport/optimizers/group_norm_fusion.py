"""GroupNormalization, which exporters write as InstanceNormalization of [N, groups, rest].

A target that keeps channels last cannot read an image as [N, groups, rest] without a transpose each way.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import array, is_op, known_dims, only_use, producer


def fuse_group_norms(model: Model) -> int:
    """Rewrite Reshape to [N, groups, rest], InstanceNormalization, Reshape back; return how many.

    Keeps: sizes without a number or a name, computed scales, and other types than float32.
    """
    return sum(_rewrite(graph, node) for graph in model.ir.graphs() for node in list(graph))


def _rewrite(graph: ir.Graph, norm: ir.Node) -> bool:
    if (
        not is_op(norm, "InstanceNormalization")
        or not only_use(norm.inputs[0])
        or not only_use(norm.outputs[0])
    ):
        return False
    grouping, ungrouping = producer(norm.inputs[0], "Reshape"), norm.outputs[0].consumers()[0]
    if grouping is None or not is_op(ungrouping, "Reshape") or ungrouping.inputs[0] is not norm.outputs[0]:
        return False
    x, result = grouping.inputs[0], ungrouping.outputs[0]
    scale, bias = array(norm.inputs[1]), array(norm.inputs[2])
    if x is None or scale is None or bias is None or scale.dtype != np.float32:
        return False
    width, name = _group_width(x, norm.inputs[0], result, len(scale)), result.name
    if width is None:
        return False
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    new = ir.node(
        "GroupNormalization",
        [x, _repeat(graph, f"{name}.scale", scale, width), _repeat(graph, f"{name}.bias", bias, width)],
        {"num_groups": len(scale), "epsilon": epsilon},
        name=norm.name,
    )
    graph.insert_before(ungrouping, new)
    result.name = None
    new.outputs[0].name, new.outputs[0].type, new.outputs[0].shape = name, result.type, result.shape
    result.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
    for node in (ungrouping, norm, grouping):
        graph.remove(node, safe=True)
    return True


def _group_width(x: ir.Value, grouped: ir.Value | None, result: ir.Value, groups: int) -> int | None:
    """Return the channels of a group; None unless [N, C, space...] becomes [N, groups, rest] and returns."""
    own, between = known_dims(x), known_dims(grouped)
    if own is None or between is None or len(own) < 3 or len(between) != 3:
        return None
    channels = own[1]
    if None in own or 0 in own or own != known_dims(result) or not isinstance(channels, int):
        return None
    return channels // groups if channels % groups == 0 and between[:2] == (own[0], groups) else None


def _repeat(graph: ir.Graph, name: str, values: Array, count: int) -> ir.Value:
    return add_initializer(graph, name, np.repeat(values, count))
