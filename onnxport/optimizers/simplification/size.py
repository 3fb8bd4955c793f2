"""Size of a model: nodes, parameters, bytes; and the bound for a simplified one."""

from __future__ import annotations

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
    """Count nodes and constants; a constant counts once however many names it has."""
    constants = [value.const_value for graph in model.ir.graphs() for value in graph.initializers.values()]
    nodes = list(model.graph.all_nodes())
    constants += [
        attribute.as_tensor()
        for node in nodes
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref()
    ]
    tensors = {id(tensor): tensor for tensor in constants if tensor is not None}.values()
    return Size(
        sum(node.op_type != "Constant" or node.domain != "" for node in nodes),
        sum(tensor.size for tensor in tensors),
        sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING),
    )
