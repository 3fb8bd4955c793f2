"""Values beyond float16 made smaller by powers of two, which weights around them take up: exact in float32.

What computes such a value gets smaller weights, what reads it larger ones:

- weights take a factor: Conv, ConvTranspose, Gemm, MatMul, and Mul and Div by a constant;
- these pass it on: Relu and its like, pools, means and sums, moves, and Add, Sub, Max, Min and Concat of operands that
  all have it, constants among them.

A value whose factor would reach an input, an output or another operator stays, as do weights that would themselves go
beyond float16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from math import ceil, log2

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.optimizers.float16.constants import LARGEST, LEAST
from onnxport.optimizers.patterns import array

_HEADROOM = 8.0  # other inputs may go further than the samples
_BEYOND = LARGEST / 2  # what islands.py calls too large
_SMALLEST = LEAST * 2**7  # of the largest weight: most others are smaller
# Operator -> places of its data; all of the others are settings, or weights that stay.
_PASSING = dict.fromkeys(
    (
        "Abs AveragePool Expand Flatten GlobalAveragePool GlobalMaxPool Identity LeakyRelu MaxPool Neg PRelu "
        "ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Slice Squeeze Tile Transpose Unsqueeze"
    ).split(),
    (0,),
)
_JOINING = frozenset(("Add", "Concat", "Max", "Min", "Sub"))
# Operator -> places of the constants that multiply its data at 0.
_WEIGHTED = {"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (1,)}


def fold_scales(model: ir.Model, peaks: Mapping[str, float]) -> tuple[str, ...]:
    """Scale what goes beyond float16 where that is exact; return the names of the values that do so no longer.

    Args:
        peaks: the largest magnitude of each value on samples.
    """
    known, folded = dict(peaks), list[str]()
    for node in model.graph:
        for value in node.outputs:
            if not _BEYOND < known.get(value.name or "", 0.0) < np.inf:
                continue
            region = _Region(model.graph, value)
            found = {each.name or "": known.get(each.name or "", 0.0) for each in region.values}
            exponent = ceil(log2(max(found.values()) * _HEADROOM / LARGEST))
            if region.is_closed and region.scale(-exponent):
                folded += [name for name, peak in found.items() if peak > _BEYOND]
                known |= {name: peak * 2.0**-exponent for name, peak in found.items()}
    return tuple(folded)


class _Region:
    """The values that have to be scaled with a value, and the constants that take the factor or give it back.

    Attributes:
        is_closed: whether constants take it everywhere.
    """

    def __init__(self, graph: ir.Graph, value: ir.Value) -> None:
        self._graph = graph
        self.values: dict[ir.Value, None] = {}
        # (node, place) of the constants that take the factor, and of those that give it back; some do both.
        self._taking: dict[tuple[ir.Node, int], None] = {}
        self._giving: dict[tuple[ir.Node, int], None] = {}
        self.is_closed = self._collect(value)

    def _collect(self, value: ir.Value) -> bool:
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if current in self.values:
                continue
            self.values[current] = None
            maker = current.producer()
            if maker is None or current.is_graph_output() or maker.graph is not self._graph:
                return False
            found = self._through(maker)
            for node, place in current.uses():
                if found is None or node.graph is not self._graph:
                    return False
                further = self._into(node, place)
                found = None if further is None else [*found, *further]
            if found is None:
                return False
            waiting += found
        return True

    def _through(self, node: ir.Node) -> list[ir.Value] | None:
        """Return what is scaled before a node so that its result is; None where that cannot be."""
        if node.domain or len([each for each in node.outputs if each.uses()]) > 1:
            return None
        if self._is_weighted(node):
            self._taking |= dict.fromkeys((node, place) for place in self._factors(node, with_bias=True))
            return []
        return self._operands(node)

    def _into(self, node: ir.Node, place: int) -> list[ir.Value] | None:
        """Return what is scaled behind a node that reads a scaled value; None where that cannot be."""
        if node.domain:
            return None
        if self._is_weighted(node) and place == self._data(node):
            self._giving |= dict.fromkeys((node, each) for each in self._factors(node, with_bias=False))
            return []
        is_data = place in _PASSING.get(node.op_type, range(len(node.inputs)))
        return None if not is_data or self._operands(node) is None else [node.outputs[0]]

    def _operands(self, node: ir.Node) -> list[ir.Value] | None:
        """Return the computed data of a node that passes a factor on, and note its constant data."""
        places = range(len(node.inputs)) if node.op_type in _JOINING else _PASSING.get(node.op_type)
        if places is None or (node.op_type == "MaxPool" and node.outputs[1:]):
            return None
        data = []
        for place in places:
            operand = node.inputs[place]
            if operand is None:
                continue
            if array(operand) is not None:
                self._taking[node, place] = None
            else:
                data.append(operand)
        return data

    @staticmethod
    def _data(node: ir.Node) -> int:
        """Return the place of the computed operand."""
        return next(place for place, each in enumerate(node.inputs) if array(each) is None)

    @staticmethod
    def _is_weighted(node: ir.Node) -> bool:
        """Return whether all operands but one are constants that multiply it, or are added to it."""
        computed = [
            place for place, each in enumerate(node.inputs) if each is not None and array(each) is None
        ]
        if node.op_type == "Mul":
            return len(computed) == 1
        return computed == [0] and (node.op_type in _WEIGHTED or node.op_type == "Div")

    @staticmethod
    def _multiplies(node: ir.Node, place: int) -> bool:
        """Return whether a constant is a factor; another is added to numbers that are scaled as it is."""
        return node.op_type in ("Mul", "Div") or (node.op_type in _WEIGHTED and place == 1)

    def _factors(self, node: ir.Node, *, with_bias: bool) -> Iterator[int]:
        if node.op_type in ("Mul", "Div"):
            yield 1 - self._data(node)
        else:
            places = _WEIGHTED[node.op_type] if with_bias else (1,)
            yield from (each for each in places if each < len(node.inputs) and node.inputs[each] is not None)

    def scale(self, exponent: int) -> bool:
        """Multiply the values by 2^exponent; return False, and change nothing, where a constant would not hold it."""
        new: dict[tuple[ir.Node, int], Array] = {}
        for node, place in self._taking | self._giving:
            power = exponent * (((node, place) in self._taking) - ((node, place) in self._giving))
            constant = array(node.inputs[place])
            assert constant is not None, "only constants are noted"
            if constant.dtype != np.float32:
                return False
            power = -power if node.op_type == "Div" else power
            scaled = np.ldexp(constant, power)
            before, after = (float(np.abs(each).max(initial=0)) for each in (constant, scaled))
            holds = after <= max(_BEYOND, before)
            if self._multiplies(node, place):
                holds &= after >= min(_SMALLEST, before)
            is_exact = np.array_equal(np.ldexp(scaled, -power), constant)
            if not (is_exact and holds):
                return False
            new[node, place] = scaled
        for (node, place), scaled in new.items():
            old = node.inputs[place]
            names = (f"{node.outputs[0].name}/scaled.{number}" for number in count())
            name = next(each for each in names if each not in self._graph.initializers)
            node.replace_input_with(place, add_initializer(self._graph, name, scaled))
            assert old is not None
            if old.is_initializer() and not old.uses():
                del self._graph.initializers[old.name or ""]  # ONNX Runtime loads no model with one left over
        return True
