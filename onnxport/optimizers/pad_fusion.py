"""Concat with constants of one number becomes Pad: tf2onnx writes a pad of channels so, and stores every zero."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import array

_LEAST = 1024  # elements of a constant; fewer cost less than they save
_LARGEST_RANK = 4  # which every target pads


def fuse_pads(model: Model) -> int:
    """Rewrite Concat(x, c) along any axis, where every element of c is the same float32; return how many."""
    return sum(_rewrite(graph, node) for graph in model.ir.graphs() for node in list(graph))


def _rewrite(graph: ir.Graph, node: ir.Node) -> bool:
    operands = [value for value in node.inputs if value is not None]
    computed = [place for place, value in enumerate(operands) if array(value) is None]
    if node.op_type != "Concat" or node.domain not in ("", "ai.onnx") or len(computed) != 1:
        return False
    (place,) = computed
    constants = [operand.const_value for operand in operands if operand is not operands[place]]
    if not any(tensor is not None and tensor.size >= _LEAST for tensor in constants):
        return False
    arrays = [tensor.numpy() for tensor in constants if tensor is not None]
    rank = arrays[0].ndim
    if rank > _LARGEST_RANK or any(each.dtype != np.float32 for each in arrays):
        return False
    # As bits: 0 and -0 differ, NaN and NaN do not.
    if len({bits for each in arrays for bits in np.unique(np.ascontiguousarray(each).view(np.int32))}) != 1:
        return False
    axis = node.attributes.get_int("axis", 0) % rank
    pads = np.zeros(2 * rank, np.int64)
    pads[axis] = sum(each.shape[axis] for each in arrays[:place])
    pads[rank + axis] = sum(each.shape[axis] for each in arrays[place:])
    result = node.outputs[0]
    fill = arrays[0].reshape(-1)[:1].reshape(())
    added = [
        add_initializer(graph, f"{result.name}.{kind}", values)
        for kind, values in (("pads", pads), ("fill", fill))
    ]
    new = ir.node("Pad", [operands[place], *added], name=node.name)
    graph.insert_before(node, new)
    name, result.name = result.name, None
    new.outputs[0].name, new.outputs[0].type, new.outputs[0].shape = name, result.type, result.shape
    result.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True
