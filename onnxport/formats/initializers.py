"""Constants that are added to a graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnxport.core.arrays import Array


def add_initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Store `array` in `graph` and return it; the graph must not have the name."""
    value = ir.val(name, const_value=ir.Tensor(array, name=name))
    graph.register_initializer(value)
    return value


def external_initializers(graph: ir.Graph) -> dict[str, ir.ExternalTensor]:
    """Return the initializers of a graph that lie in files, by name."""
    stored = ((name, value.const_value) for name, value in graph.initializers.items())
    return {name: tensor for name, tensor in stored if isinstance(tensor, ir.ExternalTensor)}


def store_external(graph: onnx.GraphProto, external: Mapping[str, ir.ExternalTensor]) -> None:
    """Put the bytes of external initializers into the graph, one after another."""
    for tensor in graph.initializer:
        stored = external.get(tensor.name)
        if stored is not None:
            whole = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            whole.raw_data = stored.tobytes()
            stored.release()
            tensor.CopyFrom(whole)
