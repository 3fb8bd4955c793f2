"""Inputs and outputs as the integers of the kernels next to them (--io)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as onnx
from litert_converter.mlir import ir

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import Shape
from onnxport.converters.tflite.quantized.quantization import (
    Quantization,
    Tensor,
    quantization_of,
    quantized_type,
    requantize,
)
from onnxport.core.errors import Refusal

if TYPE_CHECKING:
    from onnxport.converters.params import Io

_SIGNED = "int8"
_SHIFT = 128  # from int8 to uint8


class IntegerPorts:
    """The ports of a module under construction."""

    def __init__(self, tfl: TflBuilder, io: Io) -> None:
        self._tfl, self._io = tfl, io
        self._inputs: dict[onnx.Value, Quantization] = {}
        self._outputs: dict[onnx.Value, Quantization] = {}
        self.refusals: list[Refusal] = []

    def input_type(self, value: onnx.Value, shape: Shape, dtype: np.dtype[np.generic]) -> ir.Type:
        """Return the type of the input for `value`, whose physical shape is `shape`."""
        plain = self._tfl.tensor_type(shape, dtype)
        if self._io == "float" or dtype != np.float32:
            return plain
        # The one grid to which all users quantize the input.
        grids = {_grid(user) for user, _ in value.uses() if user.op_type != "Shape"}
        grid = grids.pop() if len(grids) == 1 and not value.is_graph_output() else None
        if grid is None or grid.storage != _SIGNED:
            self._refuse("input", value)
            return plain
        self._inputs[value] = grid
        return quantized_type(plain, self._in_file(grid))

    def input(self, value: onnx.Value, argument: Tensor) -> Tensor:
        """Return the float tensor that an input's argument stands for."""
        grid = self._inputs.get(value)
        if grid is None:
            return argument
        if self._io == "uint8":
            argument = requantize(argument, grid)
        return self._tfl.quantized.dequantize(argument, grid)

    def output(self, value: onnx.Value, tensor: Tensor) -> Tensor:
        """Return the tensor to give for an output that was computed as `tensor`."""
        if self._io == "float" or self._tfl.dtype_of(tensor) != np.float32:
            return tensor
        grid = self._tfl.quantized.grid(tensor)
        if grid is None or grid.storage != _SIGNED:
            self._refuse("output", value)
            return tensor
        self._outputs[value] = grid
        if self._io == "uint8":
            # Otherwise the compiler makes the producer give uint8, for which it has no kernel.
            tensor = self._tfl.quantized.add_barrier(tensor)
        stored: Tensor = tensor.owner.operation.operands[0]  # of the dequantize
        return requantize(stored, self._in_file(grid)) if self._io == "uint8" else stored

    def parameters(self, value: onnx.Value, *, is_output: bool) -> dict[str, Any]:
        """Return scale and zero point of a quantized port, by the names of manifest.Port."""
        grid = (self._outputs if is_output else self._inputs).get(value)
        if grid is None:
            return {}
        grid = self._in_file(grid)
        return {"scale": grid.scale[0], "zero_point": grid.zero_point[0]}

    def _in_file(self, grid: Quantization) -> Quantization:
        if self._io != "uint8":
            return grid
        return Quantization("uint8", grid.scale, tuple(point + _SHIFT for point in grid.zero_point))

    def _refuse(self, kind: str, value: onnx.Value) -> None:
        node = value.producer()
        maker = f"comes from {node.op_type} and " if node is not None and kind == "output" else ""
        cut = ", or end the model before it (onnxport extract --outputs NAME)" if maker else ""
        why = (
            f"{maker}is not quantized to 8 bits in the model, so --io {self._io} has no scale for it; "
            f"leave out --io{cut}"
        )
        self.refusals.append(Refusal(kind, value.name or "", why))


def _grid(node: onnx.Node) -> Quantization | None:
    if node.op_type != "QuantizeLinear" or node.domain or node.outputs[0].dtype is None:
        return None
    constants = [None if value is None else value.const_value for value in node.inputs[1:]]
    if not constants or any(constant is None or constant.size != 1 for constant in constants):
        return None
    scale, *points = (constant.numpy() for constant in constants if constant is not None)
    dtype = np.dtype(node.outputs[0].dtype.numpy()).name
    return quantization_of(dtype, scale, points[0] if points else None, None)
