"""Channel scaling: each channel of a tensor its own scale, where a float operator stands beside an integer Conv.

A grid has one step for all channels. Where one channel reaches a hundred times as far as most, these keep few integers.
A float operator (HardSwish, say) can divide each channel by s for one more multiplication, and the Conv behind it takes
it back in its weight: W x = (W s) (x / s) (Xiao et al. 2023, "SmoothQuant", section 4). A depthwise convolution loses
nothing by it, since its weight has a scale per channel; for others s is a power of the channel's reach. In the same way
a Conv multiplies its results by s, and the float operator behind it divides by s first; the weight's scale per output
channel takes that without loss. MatMul is left out: MiniLM in static int8 gained nothing (5.7 dB, and 5.2 with it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, median
from onnxport.formats.initializers import add_initializer
from onnxport.quantize.accuracy.product_constants import array_of, replace_constant
from onnxport.quantize.grids import Floats
from onnxport.quantize.placement import Placement, Unit

# A channel's reach, as a share of the largest one's: below, scales would grow without limit.
_LEAST_REACH = 1e-3
# The largest reach by the median one: below, one step serves all channels well.
_UNEVEN = 4.0
# The power of the reach that s is where a weight's scale serves all input channels.
_POWER = 0.5
# Operators that only move numbers: what they give is not made by a float operator.
_MOVES = frozenset("Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())


@dataclass(frozen=True)
class ScalableTensors:
    """Tensors between float operators and integer products, of which each channel may have a scale.

    Attributes:
        operands: tensor to the products that read it; all who read it in integers.
        results: tensor to the Conv that makes it; only float operators read it.
    """

    operands: Mapping[str, Sequence[Unit]]
    results: Mapping[str, Unit]


@dataclass(frozen=True)
class Scaled:
    """The changes that scaling made to a graph.

    Attributes:
        reach: the tensors whose channels now reach about equally far, to the largest magnitude that matters there.
        divided: each of them, to its old name and what its channels were divided by.
    """

    reach: Mapping[str, float]
    divided: Mapping[str, tuple[str, Array]]


def find_scalable_tensors(graph: ir.Graph, placement: Placement) -> ScalableTensors:
    """Return the tensors of a plan that can be scaled."""
    nodes = {node.name: node for node in graph}
    makers = {value.name: node for node in graph for value in node.outputs}
    made = {name for unit in placement.units for name in unit.writes}
    readers: dict[str, list[Unit]] = {}
    for unit in placement.units:
        for name in unit.reads:
            readers.setdefault(name, []).append(unit)
    operands = {
        name: units
        for name, units in readers.items()
        if name in makers
        and name not in made
        and makers[name].op_type not in _MOVES
        and all(_takes_scales(unit, nodes[unit.node]) for unit in units)
    }
    results = {
        unit.writes[0]: unit
        for unit in placement.units
        if unit.op == "Conv"
        and unit.weight is not None
        and unit.writes
        and not unit.folded
        and _is_read_in_float(nodes[unit.node].outputs[0], placement)
    }
    return ScalableTensors(operands, results)


def _takes_scales(unit: Unit, node: ir.Node) -> bool:
    """Return whether a unit is a Conv whose weight can take scales back: of one group, or depthwise."""
    weight = node.inputs[1] if unit.op == "Conv" and unit.weight is not None else None
    if weight is None or weight.const_value is None:
        return False
    return node.attributes.get_int("group", 1) == 1 or weight.const_value.shape.numpy()[1] == 1


def _is_read_in_float(value: ir.Value, placement: Placement) -> bool:
    users = [node for node, _ in value.uses()]
    return (
        bool(users) and not value.is_graph_output() and all(node.name in placement.floats for node in users)
    )


def scale_channels(
    graph: ir.Graph,
    tensors: ScalableTensors,
    placement: Placement,
    extremes: Mapping[str, tuple[Array, Array]],
) -> Scaled:
    """Insert the multiplications into `graph` and change its weights.

    Args:
        placement: the plan in which `tensors` were found.
        extremes: least and greatest value of every channel of each tensor.
    """
    nodes = {node.name: node for node in graph}
    values = {value.name: value for node in graph for value in node.outputs}
    found, divided = dict[str, float](), dict[str, tuple[str, Array]]()
    for name, unit in tensors.results.items():
        reach = _reach(extremes[name], placement.bounds.get(name))
        if _is_uneven(reach):
            found[name] = float(reach.max())
            factor = (reach.max() / reach).astype(np.float32)
            _scale_results(graph, nodes[unit.node], values[name], factor)
            divided[name] = (name, 1 / factor)
    for name, units in tensors.operands.items():
        reach = _reach(extremes[name], None)
        if _is_uneven(reach):
            products = [nodes[unit.node] for unit in units]
            power = 1.0 if all(map(_is_depthwise, products)) else _POWER
            factor = ((reach / reach.max()) ** power).astype(np.float32)
            scaled = _scale_operand(graph, products, values[name], factor)
            found[scaled] = float((reach / factor).max())
            divided[scaled] = (name, factor)
    return Scaled(found, divided)


def _reach(extremes: tuple[Array, Array], bounds: tuple[float, float] | None) -> Array:
    """Return the largest magnitude of each channel, float64, none next to nothing."""
    low, high = (np.asarray(each, np.float64) for each in extremes)
    if bounds is not None:
        low, high = np.maximum(low, bounds[0]), np.minimum(high, bounds[1])
    reach = np.maximum(np.abs(low), np.abs(high))
    return np.asarray(np.maximum(reach, _LEAST_REACH * reach.max(initial=0.0)))


def _is_uneven(reach: Array) -> bool:
    return reach.size > 1 and bool(reach.max() > _UNEVEN * median(reach) > 0)


def _is_depthwise(node: ir.Node) -> bool:
    return node.attributes.get_int("group", 1) > 1


def _scale_results(graph: ir.Graph, conv: ir.Node, value: ir.Value, factor: Floats) -> None:
    """Multiply a Conv's results by `factor` in its constants, and divide them again for their readers."""
    weight = array_of(conv.inputs[1])
    replace_constant(graph, conv, 1, weight * _along(factor, 0, weight.ndim))
    if len(conv.inputs) > 2 and conv.inputs[2] is not None:
        replace_constant(graph, conv, 2, array_of(conv.inputs[2]) * factor)
    users = list(value.uses())
    divided = _multiply(graph, value, 1 / factor, weight.ndim)
    for user, index in users:
        user.replace_input_with(index, divided)


def _scale_operand(graph: ir.Graph, products: Sequence[ir.Node], value: ir.Value, factor: Floats) -> str:
    """Divide an operand by `factor`, and multiply the weights of its products by it; return its new name."""
    divided = _multiply(graph, value, 1 / factor, array_of(products[0].inputs[1]).ndim)
    for node in products:
        weight = array_of(node.inputs[1])
        if _is_depthwise(node):
            rows = np.repeat(factor, len(weight) // len(factor))
            scaled = weight * _along(rows, 0, weight.ndim)
        else:
            scaled = weight * _along(factor, 1, weight.ndim)
        node.replace_input_with(0, divided)
        replace_constant(graph, node, 1, scaled)
    return divided.name or ""


def _multiply(graph: ir.Graph, value: ir.Value, factor: Array, rank: int) -> ir.Value:
    """Insert a multiplication behind the maker of `value`, which only the caller's nodes are to read."""
    maker = value.producer()
    assert maker is not None
    name = f"{value.name}.by_channel"
    shaped = _along(np.asarray(factor, np.float32), 1, rank)[0]
    constant = add_initializer(graph, f"{name}.factor", shaped)
    result = ir.Value(name=name, type=value.type, shape=value.shape)
    graph.insert_after(maker, ir.Node("", "Mul", [value, constant], outputs=[result], name=f"{name}.scale"))
    return result


def _along(factor: Floats, axis: int, rank: int) -> Floats:
    return factor.reshape([-1 if each == axis else 1 for each in range(rank)])
