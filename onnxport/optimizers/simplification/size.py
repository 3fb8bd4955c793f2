"""Size of a model: nodes, parameters, bytes; and the bound for a simplified one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import onnx_ir as ir

from onnxport.formats.model import Model

# Bound on a simplified model's growth: folded shapes and merged weights are of that order.
GROWTH, GROWTH_BYTES = 1.1, 64 * 2**10


@dataclass(frozen=True)
class Size:
    """Counts over all graphs of a model.

    Attributes:
        nodes: without Constant.
        parameters: elements of all constants.
        bytes: of all constants.
    """

    nodes: int
    parameters: int
    bytes: int

    def change(self, after: Size) -> dict[str, list[int]]:
        """Return each figure of the report as [before, after]."""
        return {name: [figure, getattr(after, name)] for name, figure in asdict(self).items()}

    @property
    def bound(self) -> int:
        """The most bytes that a model simplified from this one may have."""
        return int(self.bytes * GROWTH) + GROWTH_BYTES


def measure_size(model: Model) -> Size:
    nodes = sum(node.op_type != "Constant" or node.domain != "" for node in model.graph.all_nodes())
    tensors = list(_tensors(model))
    weights = sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING)
    return Size(nodes, sum(tensor.size for tensor in tensors), weights)


def _tensors(model: Model) -> Iterator[ir.TensorProtocol]:
    """Iterate over all constants, each once however many names it has."""
    seen: set[int] = set()
    for graph in model.ir.graphs():
        found = [value.const_value for value in graph.initializers.values()]
        for node in graph:
            found += [
                attribute.as_tensor()
                for attribute in node.attributes.values()
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref()
            ]
        for tensor in found:
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor
