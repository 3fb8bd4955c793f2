"""Write a `.tflite` file as an ONNX model: each operator as the float one that ONNX has, between Q and DQ.

    CONV_2D(x, w, b) of integers  ->  QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), ...))

Tensors keep their axes: operators of the channels-last layout stand between two Transposes. Sizes are those of one set
of inputs. An operator that operators.py does not know becomes one of the domain "tflite", which equals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.formats.tflite.ports import Signature
from onnxport.validate.translation.graph_writer import GraphWriter, NotLifted, data_type
from onnxport.validate.translation.tflite.contents import Operator, StoredGraph, StoredTensor
from onnxport.validate.translation.tflite.hybrid import mark

DOMAIN = "tflite"
Shape = tuple[int, ...]


@dataclass
class Lifted:
    """A file as an ONNX model.

    Attributes:
        model: inputs and outputs have the source's names and axes; a tensor of the file has its `key`.
        stored: the file.
        ends: its signature.
        unknown: an operator's result -> why it was not lifted.
    """

    model: Model
    stored: StoredGraph
    ends: Signature
    unknown: dict[str, str] = field(default_factory=dict)


class Lifting(GraphWriter):
    """The graph under construction.

    Args:
        shapes: of every tensor, by index, at one set of inputs.
    """

    def __init__(self, stored: StoredGraph, ends: Signature, shapes: Mapping[int, Shape]) -> None:
        self._stored, self._ends, self._shapes = stored, ends, shapes
        super().__init__(DOMAIN)
        self._values: dict[int, ir.Value] = {}
        self._floats: dict[int, ir.Value] = {}
        self.unknown: dict[str, str] = {}

    def run(self, operators: Mapping[str, Callable[[OperatorView], None]]) -> Lifted:
        """Write the graph.

        Args:
            operators: a function for each operator that is known, which emits its results.
        """
        inputs = [
            self._input(port.name, port.dtype, port.permutation, index) for port, index in self._ends.inputs
        ]
        for operator in self._stored.operators:
            results = [each for each in operator.outputs if each >= 0]
            self.label = self.tensor(results[0]).name if results else operator.op
            lift = operators.get(operator.op)
            before = len(self.nodes)
            try:
                if lift is None:
                    raise NotLifted(f"{operator.op} is not known here")
                lift(OperatorView(self, operator))
            except NotLifted as error:
                del self.nodes[before:]
                self._opaque(operator, str(error))
        outputs = [self._output(port.name, port.permutation, index) for port, index in self._ends.outputs]
        model = self.finish(inputs, outputs)
        return Lifted(model, self._stored, self._ends, self.unknown)

    # ---- tensors

    def tensor(self, index: int) -> StoredTensor:
        return self._stored.tensors[index]

    def shape(self, index: int) -> Shape:
        return self._shapes[index]

    def constant(self, index: int) -> Array | None:
        return self.tensor(index).data

    def value(self, index: int) -> ir.Value:
        """Return what the file stores: integers of a quantized tensor."""
        if index not in self._values:
            tensor = self.tensor(index)
            if tensor.data is None:
                raise NotLifted(f"{tensor.name!r} is a state")
            self._values[index] = self.store(tensor.data, tensor.key)
        return self._values[index]

    def floats(self, index: int) -> ir.Value:
        """Return what the numbers of a tensor stand for."""
        tensor = self.tensor(index)
        if tensor.is_blocked:
            raise NotLifted(f"the grid of {tensor.name!r} lies in blocks")
        if tensor.grid is None or tensor.dtype.startswith("float"):
            return self.value(index)
        if index not in self._floats:
            self._floats[index] = self._dequantized(tensor)
        return self._floats[index]

    def _dequantized(self, tensor: StoredTensor) -> ir.Value:
        assert tensor.grid is not None
        grid = tensor.grid
        if tensor.dtype == "int64":  # a bias beside 16-bit activations, whose step is below float32's
            if tensor.data is None:
                raise NotLifted(f"{tensor.name!r} has 64 bits and is computed")
            scale = _along(grid.scale, grid.axis, tensor.data.ndim)
            return self.store(
                (tensor.data * scale.astype(np.float64)).astype(np.float32), f"{tensor.key}/floats"
            )
        return self._grid_node("DequantizeLinear", self.value(tensor.index), tensor)

    def _grid_node(self, op: str, value: ir.Value, tensor: StoredTensor) -> ir.Value:
        assert tensor.grid is not None
        grid = tensor.grid
        dtype = data_type(tensor.dtype).numpy()
        uniform = grid.is_uniform
        scale = self.store(grid.scale.reshape(()) if uniform else grid.scale, f"{tensor.key}/scale")
        operands = [value, scale]
        if op == "QuantizeLinear" or grid.zero_point.any():
            zero = grid.zero_point.astype(dtype)
            operands.append(self.store(zero.reshape(()) if uniform else zero, f"{tensor.key}/zero"))
        return self.add(op, operands, **({} if uniform else {"axis": grid.axis}))

    def define(self, index: int, value: ir.Value) -> None:
        """Make `value`, of floats, the tensor's: rounded to its grid, if it has one."""
        tensor = self.tensor(index)
        if tensor.grid is not None and not tensor.dtype.startswith("float"):
            if tensor.dtype not in ("int8", "uint8", "int16"):
                raise NotLifted(f"{tensor.name!r} is computed in {tensor.dtype}")
            value = self._grid_node("QuantizeLinear", value, tensor)
        elif value in self._values.values() or value.producer() is None:
            value = self.add("Identity", [value])
        dtype = data_type(tensor.dtype)
        value.name, value.type = tensor.key, ir.TensorType(dtype)
        value.shape = ir.Shape(self.shape(index))
        self._values[index] = value

    def _opaque(self, operator: Operator, why: str) -> None:
        operands: list[ir.Value | None] = []
        for each in operator.inputs:
            if each < 0 or (each not in self._values and self.tensor(each).data is None):
                operands.append(None)
            else:
                operands.append(self.value(each))
        results = self.add_all(operator.op, operands, outputs=len(operator.outputs), domain=DOMAIN)
        for index, value in zip(operator.outputs, results, strict=True):
            tensor = self.tensor(index)
            value.name, value.type = tensor.key, ir.TensorType(data_type(tensor.dtype))
            value.shape = ir.Shape(self.shape(index))
            self._values[index] = value
            self.unknown[tensor.key] = why

    # ---- the ends

    def _input(self, name: str, dtype: str, permutation: Sequence[int], index: int) -> ir.Value:
        """Return an input as the source has it, and define the tensor that it fills."""
        tensor, self.label = self.tensor(index), name
        shape = self.shape(index)
        order = np.argsort(permutation) if permutation else range(len(shape))
        value = ir.Value(
            name=name,
            type=ir.TensorType(data_type(dtype)),
            shape=ir.Shape([shape[each] for each in order]),
        )
        found = self.add("Transpose", [value], perm=list(permutation)) if permutation else value
        if tensor.grid is None and dtype != tensor.dtype:
            found = self.add("Cast", [found], to=int(data_type(tensor.dtype)))
        self.define(index, found)
        return value

    def _output(self, name: str, permutation: Sequence[int], index: int) -> ir.Value:
        port = next(port for port, place in self._ends.outputs if place == index)
        found, self.label = self.floats(index), name
        if permutation:
            found = self.add("Transpose", [found], perm=[int(each) for each in np.argsort(permutation)])
        if self.tensor(index).grid is None and port.dtype != self.tensor(index).dtype:
            found = self.add("Cast", [found], to=int(data_type(port.dtype)))
        found = self.add("Identity", [found])
        found.name, found.type = name, ir.TensorType(data_type(port.dtype))
        return found


class OperatorView:
    """An operator with its operands as floats, for the functions of operators.py."""

    def __init__(self, lifting: Lifting, operator: Operator) -> None:
        self.lifting, self.operator = lifting, operator
        self.options = operator.options
        self.add, self.number = lifting.add, lifting.number

    @property
    def count(self) -> int:
        return len(self.operator.inputs)

    def has(self, place: int) -> bool:
        return place < self.count and self.operator.inputs[place] >= 0

    def input(self, place: int) -> ir.Value:
        return self.lifting.floats(self.operator.inputs[place])

    def factor(self, place: int, weight: int, axes: Sequence[int]) -> ir.Value:
        """Return an operand of a product, which the kernel rounds at run time if its weight is stored as integers.

        Args:
            weight: the weight's place.
            axes: over which floats share a scale.
        """
        data, stored = (self.lifting.tensor(self.operator.inputs[each]) for each in (place, weight))
        value = self.input(place)
        if data.dtype != "float32" or stored.grid is None or stored.data is None:
            return value
        return mark(self.add("Identity", [value]), axes)

    def shape(self, place: int) -> Shape:
        return self.lifting.shape(self.operator.inputs[place])

    def dtype(self, place: int) -> str:
        return self.lifting.tensor(self.operator.inputs[place]).dtype

    @property
    def result_shape(self) -> Shape:
        return self.lifting.shape(self.operator.outputs[0])

    @property
    def result_dtype(self) -> str:
        return self.lifting.tensor(self.operator.outputs[0]).dtype

    def integers(self, place: int) -> list[int]:
        """Return a constant of plain integers.

        Raises:
            NotLifted: it is computed.
        """
        data = self.lifting.constant(self.operator.inputs[place])
        if data is None:
            raise NotLifted(f"input {place} of {self.operator.op} is computed")
        return [int(each) for each in data.reshape(-1)]

    def emit(self, value: ir.Value, place: int = 0) -> None:
        self.lifting.define(self.operator.outputs[place], self._activated(value))

    def _activated(self, value: ir.Value) -> ir.Value:
        number = self.options.get("fusedActivationFunction", 0)
        if number == 0:
            return value
        if number == 1:
            return self.add("Relu", [value])
        if number in _CLIPS:
            ends = [self.number(np.float32(each)) for each in _CLIPS[number]]
            return self.add("Clip", [value, *ends])
        if number == 4:
            return self.add("Tanh", [value])
        raise NotLifted(f"activation {number} of {self.operator.op} is not known here")


# ActivationFunctionType -> bounds.
_CLIPS = {2: (-1.0, 1.0), 3: (0.0, 6.0)}


def _along(values: Array, axis: int, rank: int) -> Array:
    return (
        values.reshape([-1 if each == axis else 1 for each in range(rank)])
        if values.size > 1
        else values.reshape(())
    )
