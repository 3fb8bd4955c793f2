"""ONNX's shape inference on a model in memory.

onnx-ir has a pass for it, which reads the whole model back to find the shapes in it: more than half of its time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import onnx
import onnx_ir as ir

_LARGE = 1000  # bytes of a weight that inference does not get: no shape depends on it, and ONNX copies all that it gets
_log = logging.getLogger(__name__)


def infer(model: ir.Model) -> bool:
    """Write what ONNX's inference with data propagation finds into the values; return whether it learned anything.

    A model that ONNX cannot infer stays as it is.
    """
    try:
        with _without_weights(model.graph):
            proto = ir.to_proto(model)
        found = onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
    except Exception as error:  # onnx-ir's and ONNX's have no base class of their own
        _log.warning("shape inference failed: %s", error)
        return False
    learned = False
    for graph, inferred in list(_pairs(model.graph, found.graph)):
        learned |= _merge(graph, inferred, is_inner=graph is not model.graph)
    return learned


@contextmanager
def _without_weights(graph: ir.Graph) -> Iterator[None]:
    """Make all weights inputs, and take the large ones away."""
    weights = [(value, value.const_value) for value in graph.initializers.values()]
    inputs = list(graph.inputs)
    known = set(map(id, inputs))
    for value, tensor in weights:
        if tensor is not None:
            value.shape = ir.Shape(tensor.shape.numpy()) if value.shape is None else value.shape
            value.dtype = tensor.dtype if value.dtype is None else value.dtype
        if id(value) not in known:
            graph.inputs.append(value)
        if tensor is None or tensor.nbytes > _LARGE:
            value.const_value = None
            graph.initializers.pop(value.name or "")
    try:
        yield
    finally:
        for value, tensor in weights:
            value.const_value = tensor
            graph.initializers.add(value)
        graph.inputs[:] = inputs


def _pairs(graph: ir.Graph, proto: onnx.GraphProto) -> Iterator[tuple[ir.Graph, onnx.GraphProto]]:
    """Yield a graph and those inside it, each with its form in the inferred model."""
    yield graph, proto
    for node, stored in zip(graph, proto.node, strict=True):
        inner = [each for each in node.attributes.values() if each.type in _GRAPHS]
        for attribute in inner:
            (same,) = (each for each in stored.attribute if each.name == attribute.name)
            graphs = (
                [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else attribute.as_graphs()
            )
            protos = [same.g] if attribute.type == ir.AttributeType.GRAPH else same.graphs
            for each, its in zip(graphs, protos, strict=True):
                yield from _pairs(each, its)


_GRAPHS = frozenset((ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS))


def _merge(graph: ir.Graph, proto: onnx.GraphProto, *, is_inner: bool) -> bool:
    values = {value.name: value for node in graph for value in node.outputs if value.name}
    known: list[Iterable[onnx.ValueInfoProto]] = [proto.value_info, proto.output]
    if is_inner:  # the inputs of the model are given, and its weights are among them
        values |= {value.name: value for value in graph.inputs if value.name}
        known.append(proto.input)
    learned = False
    for found in (each for part in known for each in part):
        value = values.get(found.name)
        if value is None:
            continue
        shape = ir.serde.deserialize_type_proto_for_shape(found.type)
        if shape is not None and value.shape != shape:
            value.shape, learned = shape, True
        type_ = ir.serde.deserialize_type_proto_for_type(found.type)
        if type_ is not None and value.dtype != type_.dtype:
            value.dtype, learned = type_.dtype, True
    return learned
