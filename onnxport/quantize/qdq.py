"""Write a plan with its grids into the graph as QuantizeLinear and DequantizeLinear.

The form of ONNX Runtime's own quantizer: integers of weights and biases behind a DequantizeLinear, and a pair of the
two behind every tensor that is to be integers. Inputs and outputs of the graph stay floats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.quantize.grids import Floats, Grid, QuantizedWeight, activation_grid, quantize_bias, weight_grid
from onnxport.quantize.placement import EXCLUDED, Placement, Unit, Weight


def write(
    settled: Model,
    placement: Placement,
    grids: Mapping[str, Grid],
    weights: Mapping[Weight, QuantizedWeight],
    corrected: Mapping[str, Floats],
) -> Model:
    """Return the quantized model; `settled` is unchanged.

    Args:
        settled: the graph of the plan.
        corrected: node name to its float32 bias, shape (channels,), in place of its own.
    """
    copy = settled.clone()
    writer = _Writer(copy.graph, placement, grids)
    for unit in placement.units:
        writer.saturate(unit)
    for unit in placement.units:
        writer.store_constants(unit, weights, corrected)
    for name in placement.activations:
        writer.quantize(name)
    if placement.dtype != "int16":
        writer.store_transposed_convolutions(
            {name for name, why in placement.floats.items() if why == EXCLUDED}
        )
    writer.drop_unused()
    copy.path = None
    return copy


class _Writer:
    """Rewrites one graph; a step's cost does not depend on the graph's size."""

    def __init__(self, graph: ir.Graph, placement: Placement, grids: Mapping[str, Grid]) -> None:
        self._graph, self._placement, self._grids = graph, placement, grids
        self._nodes = {node.name: node for node in graph}
        self._values = {value.name: value for node in graph for value in node.outputs}
        self._values |= {value.name: value for value in graph.inputs}
        self._made = {name for unit in placement.units for name in unit.writes}
        self._first = graph[0]
        self._taken = set(self._values) | set(graph.initializers)
        self._held: dict[Weight | ir.Value, ir.Value] = {}
        self._parameters: dict[Grid, tuple[ir.Value, ir.Value]] = {}
        # What is made by a change of the grid, to what it is made of: the same integers.
        self._group_of = {
            name: group[0] for group in placement.groups for name in group if placement.affine[name][1] != 0
        }
        self._rescaled = {
            unit.writes[0]: unit.reads[0] for unit in placement.units if unit.affine is not None
        }
        self._rescaling = {unit.node: None for unit in placement.units if unit.affine is not None}
        self._numbers: dict[str, ir.Value] = {}

    def saturate(self, unit: Unit) -> None:
        """Remove a Relu or Clip behind a unit where its output's grid ends within a rounding of the bounds."""
        if unit.bounds is None or not unit.folded:
            return
        if not _fits_bounds(self._grids[unit.writes[0]], unit.bounds):
            return
        raw, last = self._nodes[unit.node].outputs[0], self._nodes[unit.folded[-1]].outputs[0]
        name, last.name = last.name, None
        raw.name = name
        last.replace_all_uses_with(raw, replace_graph_outputs=True)
        for folded in reversed(unit.folded):
            self._graph.remove(self._nodes[folded], safe=True)
        self._values[name] = raw

    # ---- constants

    def store_constants(
        self, unit: Unit, weights: Mapping[Weight, QuantizedWeight], corrected: Mapping[str, Floats]
    ) -> None:
        """Store a unit's weight, bias and constant operands as integers."""
        node = self._nodes[unit.node]
        if unit.weight is not None:
            weight = weights[unit.weight]
            node.replace_input_with(1, self._weight(unit.weight, weight))
            self._store_bias(unit, node, weight, corrected.get(unit.node))
        constants = unit.constants if unit.affine is None else ()
        for index, value in enumerate(node.inputs):
            if value is not None and value.name in constants:
                node.replace_input_with(index, self._constant(value))

    def _weight(self, weight: Weight, stored: QuantizedWeight) -> ir.Value:
        if weight not in self._held:
            scales, axis = stored.grid.scales, stored.grid.axis
            points = np.zeros(scales.shape, np.int8)
            self._held[weight] = self._dequantized(weight.tensor, stored.values, scales, points, axis)
        return self._held[weight]

    def _store_bias(
        self, unit: Unit, node: ir.Node, weight: QuantizedWeight, corrected: Floats | None
    ) -> None:
        values = read_bias(self._graph, unit) if corrected is None else corrected
        if unit.bias is None:
            return
        left = self._left_over(unit.reads[0])
        if left:
            own = np.zeros(unit.bias.channels, np.float32) if values is None else values
            values = own + left * _channel_sums(weight, unit)
        if values is None:
            return
        stored = quantize_bias(values, self._grids[unit.reads[0]], weight.grid)
        name = unit.bias.tensor or f"{unit.node}.bias"
        points = np.zeros(stored.scales.shape, np.int32)
        axis = None if stored.scales.ndim == 0 else 0
        node.resize_inputs(max(3, len(node.inputs)))
        node.replace_input_with(2, self._dequantized(name, stored.values, stored.scales, points, axis))

    def _left_over(self, name: str) -> float:
        """Return how much an activation exceeds its grid because zero points are integers.

        A product makes up for it in its bias, except at the borders that it pads.
        """
        first = self._group_of.get(name)
        if first is None:
            return 0.0
        grid, own = self._grids[first], self._grids[name]
        return self._placement.affine[name][1] - float(own.scale) * (grid.zero_point - own.zero_point)

    def _constant(self, value: ir.Value) -> ir.Value:
        if value not in self._held:
            assert value.const_value is not None
            values = value.const_value.numpy()
            grid = activation_grid(values.min(), values.max(), self._placement.dtype)
            integers, point = grid.quantized(values), np.asarray(grid.zero_point, grid.dtype)
            self._held[value] = self._dequantized(
                value.name or "", integers, np.asarray(grid.scale), point, None
            )
        return self._held[value]

    def _dequantized(
        self, name: str, integers: Array, scales: Array, points: Array, axis: int | None
    ) -> ir.Value:
        """Return the floats of stored integers."""
        inputs = [
            self._initializer(f"{name}.quantized", integers),
            self._initializer(f"{name}.scale", scales),
            self._initializer(f"{name}.zero_point", points),
        ]
        node = ir.node(
            "DequantizeLinear",
            inputs,
            {} if axis is None else {"axis": axis},
            outputs=[self._value(f"{name}.floats", ir.DataType.FLOAT, ir.Shape(integers.shape))],
            name=self._free(f"{name}.dequantize"),
        )
        self._graph.insert_before(self._first, node)
        return node.outputs[0]

    def store_transposed_convolutions(self, excluded: Collection[str]) -> None:
        """Store the weights of each ConvTranspose between integers as such, too, with a scale for each channel.

        It computes floats, but ONNX Runtime rounds weights that it finds there in floats, with a single scale
        (optimizer/qdq_transformer/weight_bias_quantization.cc of 1.31).
        """
        for node in self._nodes.values():
            if node.op_type != "ConvTranspose" or node.domain or node.attributes.get_int("group", 1) != 1:
                continue
            value, readers = node.inputs[1], [reader for reader, _ in node.outputs[0].uses()]
            operand = node.inputs[0].producer() if node.inputs[0] is not None else None
            if value is None or value.const_value is None or value.dtype != ir.DataType.FLOAT:
                continue
            if operand is None or operand.op_type != "DequantizeLinear" or node.name in excluded:
                continue
            if not readers or any(reader.op_type != "QuantizeLinear" for reader in readers):
                continue
            weight, values = Weight(value.name or "", 1), value.const_value.numpy()
            grid = weight_grid(values, weight.axis)
            node.replace_input_with(1, self._weight(weight, QuantizedWeight(grid.quantized(values), grid)))

    # ---- activations

    def quantize(self, name: str) -> None:
        """Put an activation on its grid: for all readers if a unit makes it, else for the units only."""
        value, made = self._values[name], name in self._made
        maker, given_out = value.producer(), made and value.is_graph_output()
        uses = [(user, index) for user, index in value.uses() if made or self._takes(user, name)]
        uses = [(user, index) for user, index in uses if user.name not in self._rescaling]
        added = [] if name in self._rescaled else [self._quantize(value)]
        numbers = self._numbers[name] = (
            self._numbers[self._rescaled[name]] if not added else added[0].outputs[0]
        )
        if uses or given_out:
            added.append(self._dequantize(value, numbers))
        if maker is None:
            self._graph.insert_before(self._first, added)
        else:
            self._graph.insert_after(maker, added)
        for user, index in uses:
            user.replace_input_with(index, added[-1].outputs[0])
        if given_out:
            self._give_out(value, added[-1].outputs[0])

    def _quantize(self, value: ir.Value) -> ir.Node:
        name = value.name or ""
        dtype = ir.DataType.from_numpy(np.dtype(self._grids[name].dtype))
        numbers = self._value(f"{name}.quantized", dtype, value.shape)
        return ir.node(
            "QuantizeLinear", [value, *self._grid(name)], outputs=[numbers], name=f"{name}.quantize"
        )

    def _dequantize(self, value: ir.Value, numbers: ir.Value) -> ir.Node:
        name = value.name or ""
        floats = self._value(f"{name}.floats", ir.DataType.FLOAT, value.shape)
        return ir.node(
            "DequantizeLinear", [numbers, *self._grid(name)], outputs=[floats], name=f"{name}.dequantize"
        )

    def _takes(self, node: ir.Node, name: str) -> bool:
        unit = self._placement.unit.get(node.name or "")
        return unit is not None and name in unit.reads

    def _give_out(self, value: ir.Value, floats: ir.Value) -> None:
        """Make `floats` the graph's output in place of `value`, under its name."""
        name = value.name
        value.name, floats.name = self._free(f"{name}.unrounded"), name
        floats.type, floats.shape = value.type, value.shape
        for index, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[index] = floats

    def _grid(self, name: str) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point of an activation; a shared grid has shared initializers."""
        grid = self._grids[name]
        if grid not in self._parameters:
            points = np.asarray(grid.zero_point, grid.dtype)
            self._parameters[grid] = (
                self._initializer(f"{name}.scale", np.asarray(grid.scale)),
                self._initializer(f"{name}.zero_point", points),
            )
        return self._parameters[grid]

    # ---- what they are made of

    def drop_unused(self) -> None:
        """Remove multiplications that became changes of scale, and unused initializers."""
        for name in reversed(self._rescaling):
            self._graph.remove(self._nodes[name], safe=True)
        kept = {value.name for value in (*self._graph.inputs, *self._graph.outputs)}
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and name not in kept:
                del self._graph.initializers[name]

    def _initializer(self, name: str, array: Array) -> ir.Value:
        value = self._value(name, ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape))
        value.const_value = ir.Tensor(array, name=value.name)
        self._graph.register_initializer(value)
        return value

    def _value(self, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        return ir.Value(name=self._free(name), type=ir.TensorType(dtype), shape=shape)

    def _free(self, name: str) -> str:
        """Return `name`, or the first free variant of it."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _fits_bounds(grid: Grid, bounds: tuple[float, float]) -> bool:
    """Return whether values on a grid lie within bounds, up to the half step that rounding adds."""
    slack = 0.501 * float(grid.scale)
    return bounds[0] - slack <= grid.low and grid.high <= bounds[1] + slack


def _channel_sums(weight: QuantizedWeight, unit: Unit) -> Floats | float:
    """Return a product's result for ones, per channel; 0 where its channels are unknown."""
    floats, axis = weight.floats, weight.grid.axis
    if axis is None and unit.op == "Conv":
        axis = 0
    if axis is None:
        return 0.0
    others = tuple(each for each in range(floats.ndim) if each != axis % floats.ndim)
    return np.asarray(floats.sum(axis=others), np.float32)


def read_bias(graph: ir.Graph, unit: Unit) -> Floats | None:
    """Return a unit's own bias, float32 (channels,); None where it has none."""
    if unit.bias is None or unit.bias.tensor is None:
        return None
    tensor: Any = graph.initializers[unit.bias.tensor].const_value
    return np.broadcast_to(tensor.numpy().reshape(-1), (unit.bias.channels,)).astype(np.float32)
