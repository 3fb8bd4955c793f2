"""Channel axes of activations, and the activations near the outputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnxport.quantize.placement.operators import PRODUCTS
from onnxport.quantize.placement.plan import Placement, Unit

# Operators that find channels along axis 1 (ONNX's order N C H W).
_CHANNELS_FIRST = frozenset(
    "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool Resize DepthToSpace".split()
)
_IMAGE_RANK = 4


def axis_of_inputs(unit: Unit) -> int:
    """Return the channel axis of a product's first operand."""
    return 1 if unit.op == "Conv" else -1


def axis_of_results(node: ir.Node) -> int:
    """Return the axis of a product's output channels in its weight."""
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return PRODUCTS[node.op_type].axis


def channel_axes(graph: ir.Graph, placement: Placement) -> Mapping[str, int]:
    """Map activations to their channel axis: 1 where an image operator touches them, else the last."""
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    ranks = {value.name: len(value.shape) for value in values if value.shape is not None}
    images = {name for unit in placement.units if unit.op in _CHANNELS_FIRST for name in unit.tensors}
    return {
        name: 1 if name in images or ranks.get(name) == _IMAGE_RANK else -1 for name in placement.activations
    }


def float_summands(graph: ir.Graph, placement: Placement) -> frozenset[str]:
    """Return results of products, a vector at each place, that only sums in float read, as before a LayerNorm.

    Its few channels with large values steer the normalization of all: their ends matter, as no image's corners do.
    """
    axes = channel_axes(graph, placement)
    values = {value.name: value for node in graph for value in node.outputs}
    found = set()
    for name in placement.observed:
        users = [node for node, _ in values[name].uses()] if name in values else []
        if users and axes[name] == -1 and all(_is_float_sum(node, placement) for node in users):
            found.add(name)
    return frozenset(found)


def _is_float_sum(node: ir.Node, placement: Placement) -> bool:
    return node.op_type == "Add" and node.name in placement.floats


def output_region(graph: ir.Graph) -> frozenset[str]:
    """Return the values between the last products and the outputs: no product averages out their errors."""
    found: set[str] = set()
    left: list[ir.Value | None] = list(graph.outputs)
    while left:
        value = left.pop()
        if value is None or value.name in found:
            continue
        found.add(value.name or "")
        maker = value.producer()
        if maker is not None and maker.op_type not in PRODUCTS:
            left += maker.inputs
    return frozenset(found)
