"""Constant folding: nodes that depend on no run-time input are computed once, by ONNX Runtime.

Dimensions of a fully known shape count as constants: they follow from the signature, not from the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from onnxport.core.child_process import ChildTooLarge
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.shape_arithmetic import Dimensions

# Larger results are left to run time: Expand and ConstantOfShape can turn eight bytes into gigabytes.
SIZE_LIMIT = 256 * 2**20  # bytes
# Of all results together that have more than _GROWTH bytes for each of their operands: many of them fill the memory,
# too.
_TOTAL_LIMIT, _GROWTH = 2**30, 4  # bytes

# Constants of more bytes go to ONNX Runtime node by node, since it copies them; beyond protobuf's limit not at all.
TOGETHER, LARGEST_INPUTS = SIZE_LIMIT, 2**30

_NOT_FOLDED = frozenset(
    # No functions of their inputs.
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli "
    # A quantized model keeps its scales: folding a DequantizeLinear would turn int8 weights into floats.
    "QuantizeLinear DequantizeLinear DynamicQuantizeLinear "
    # Their results cannot be initializers.
    "ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
    "SequenceInsert SequenceMap SplitToSequence".split()
)


# The values of their operands say how large their results are: these may be of any size while it is unknown.
_SIZED_BY_VALUES = frozenset(
    "BlackmanWindow ConstantOfShape Expand EyeLike HammingWindow HannWindow MelWeightMatrix OneHot Pad Range Resize "
    "Tile Upsample".split()
)

# Types whose results ONNX Runtime does not return to Python as numbers.
_KEPT = frozenset(
    kind
    for kind in ir.DataType
    if kind.name.startswith(("BFLOAT", "FLOAT4", "FLOAT8", "INT2", "INT4", "STRING", "UINT2", "UINT4"))
)


def fold_constants(model: Model, *, limit: int = SIZE_LIMIT) -> int:
    """Replace constant nodes by initializers, also in branches and loop bodies; return how many.

    A result of more than `limit` bytes is left to run time unless its operands are as large.
    """
    return sum(_fold_graph(model, graph, limit) for graph in list(model.ir.graphs()))


def _fold_graph(model: Model, graph: ir.Graph, limit: int) -> int:
    folded = _fold_known_dimensions(model, graph)
    nodes = _constant_nodes(model, graph, limit)
    if not nodes:
        return folded
    refusals = _refusals()
    if _constant_bytes(nodes) <= TOGETHER:
        grown = sum(map(_growth, nodes))
        try:
            _replace(graph, nodes, _evaluate(model, nodes))
            model.grown += grown
            return folded + len(nodes)
        except ChildTooLarge:
            nodes = [node for node in nodes if _are_small([node])]
        except refusals:
            pass
    for node in nodes:
        # One that depends on a node that ONNX Runtime refused stays, too.
        known = all(value is None or value.const_value is not None for value in node.inputs)
        if known and _constant_bytes([node]) <= LARGEST_INPUTS:
            grown = _growth(node)
            with contextlib.suppress(ChildTooLarge, *refusals):
                _replace(graph, [node], _evaluate(model, [node]))
                model.grown += grown
                folded += 1
    return folded


def _refusals() -> tuple[type[Exception], ...]:
    """Return ONNX Runtime's exceptions: it is stricter about a node than ONNX, or fails on these constants.

    Imported here, as all of ONNX Runtime: many models have nothing to fold.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException


def _constant_bytes(nodes: Iterable[ir.Node]) -> int:
    """Return the bytes of constants that ONNX Runtime needs to compute these nodes."""
    tensors = {value: value.const_value for node in nodes for value in node.inputs if value is not None}
    return sum(
        tensor.nbytes
        for tensor in tensors.values()
        if tensor is not None and tensor.dtype != ir.DataType.STRING
    )


def _fold_known_dimensions(model: Model, graph: ir.Graph) -> int:
    """Fold values computed from known dimensions; other dimensions of the same shape may be open."""
    folded = 0
    for value, elements in Dimensions(graph).known_values().items():
        node, dtype = value.producer(), value.dtype
        if node is not None and dtype is not None and not _is_result_inside(model, node):
            _replace(graph, [node], {value.name or "": elements.astype(dtype.numpy())})
            folded += 1
    return folded


def _is_result_inside(model: Model, node: ir.Node) -> bool:
    """Return whether a branch or loop body returns the node's result, which may be no initializer there."""
    return node.graph is not model.graph and any(value.is_graph_output() for value in node.outputs)


def _constant_nodes(model: Model, graph: ir.Graph, limit: int) -> list[ir.Node]:
    """Return the nodes that depend on constants alone, in graph order."""
    known: set[ir.Value] = set()
    nodes, grown = [], model.grown
    for node in graph:
        if not _is_foldable(node) or _is_result_inside(model, node):
            continue
        inputs = [value for value in node.inputs if value is not None]
        if all(v in known or v.const_value is not None for v in inputs) and not _is_too_large(node, limit):
            grown += _growth(node)
            if grown > _TOTAL_LIMIT:
                break
            nodes.append(node)
            known.update(node.outputs)
    return nodes


def _is_foldable(node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type in _NOT_FOLDED:
        return False
    has_body = any(
        a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()
    )
    return not has_body and all(value.dtype not in _KEPT for value in node.outputs)


def _is_too_large(node: ir.Node, limit: int) -> bool:
    if node.op_type in _SIZED_BY_VALUES and not all(_is_sized(value) for value in node.outputs):
        return True
    limit = min(max(limit, _constant_bytes([node])), SIZE_LIMIT)
    return any(_bytes_of(value) > limit for value in node.outputs)


def _bytes_of(value: ir.Value) -> int:
    """Return the bytes that its shape tells, without open dimensions; 0 where that or its type is unknown."""
    if value.shape is None or value.dtype is None:
        return 0
    return int(prod(dim for dim in dims_of(value) if isinstance(dim, int)) * value.dtype.itemsize)


def _growth(node: ir.Node) -> int:
    """Return the bytes of results that are much larger than the constants that they are made of."""
    size = sum(map(_bytes_of, node.outputs))
    operands = sum(_bytes_of(value) for value in node.inputs if value is not None)
    return size if size > _GROWTH * operands else 0


def _is_sized(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(dim, int) for dim in dims_of(value))


def _are_small(nodes: Iterable[ir.Node]) -> bool:
    """Return whether the shapes say that all results together have at most SIZE_LIMIT bytes."""
    results = [value for node in nodes for value in node.outputs if value.name]
    return (
        all(_is_sized(value) and value.dtype is not None for value in results)
        and sum(map(_bytes_of, results)) <= SIZE_LIMIT
    )


def _evaluate(model: Model, nodes: list[ir.Node]) -> dict[str, np.ndarray]:
    """Compute the results that something outside `nodes` uses, by name."""
    from onnxport.runtimes.ort.inference_session import open_session
    from onnxport.runtimes.ort.offline_optimizer import compute_confined

    inside = set(nodes)
    wanted = [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output() or any(user not in inside for user in value.consumers())
    ]
    constants = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    graph = onnx.GraphProto(name="constants")
    graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    for value in constants:
        if value.const_value is not None:
            graph.initializer.append(onnx.numpy_helper.from_array(value.const_value.numpy(), value.name))
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in wanted)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in model.ir.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=min(model.ir.ir_version, 10))
    names = [value.name or "" for value in wanted]
    data = proto.SerializeToString()
    if _are_small(nodes):
        arrays = open_session(data, level="disable").run(names, {})
    else:
        arrays = compute_confined(data, names, max(_TOTAL_LIMIT, 4 * len(data)))
    return dict(zip(names, arrays, strict=True))


def _replace(graph: ir.Graph, nodes: Iterable[ir.Node], arrays: dict[str, np.ndarray]) -> None:
    for node in reversed(list(nodes)):
        for value in node.outputs:
            array = arrays.get(value.name or "")
            if array is None:
                continue
            constant = ir.val(value.name, const_value=ir.Tensor(array, name=value.name))
            value.name = None
            value.replace_all_uses_with(constant, replace_graph_outputs=True)
            graph.register_initializer(constant)
        graph.remove(node, safe=True)
