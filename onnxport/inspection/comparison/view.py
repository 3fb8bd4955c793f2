"""A model's graph without the nodes that only carry a value: Identity, Constant, and grids of a quantization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model

_GRIDS = ("QuantizeLinear", "DequantizeLinear")
_CARRIERS = frozenset(("Identity", "Constant", *_GRIDS))


@dataclass(frozen=True)
class Origin:
    """Where a value comes from, behind carriers.

    Attributes:
        value: that of a node or a graph input, or a constant.
        dequantized_by: the last DequantizeLinear behind it, by which a stored constant becomes numbers.
    """

    value: ir.Value
    dequantized_by: ir.Node | None = None

    @property
    def is_constant(self) -> bool:
        return self.value.const_value is not None and not self.value.is_graph_input()

    @cached_property
    def numbers(self) -> Array:
        """The elements of a constant, dequantized."""
        assert self.value.const_value is not None
        stored, node = self.value.const_value.numpy(), self.dequantized_by
        # Numbers that are still to be quantized are what they are.
        return stored if node is None or stored.dtype.kind == "f" else dequantize(stored, node)

    @cached_property
    def key(self) -> str:
        """Equal for constants of equal numbers."""
        numbers = self.numbers
        data = numbers.tobytes() if numbers.dtype != object else repr(numbers.tolist()).encode()
        return f"{numbers.dtype} {numbers.shape} {sha256(data).hexdigest()}"


class View:
    """The nodes of a main graph that compute something, and the origins of what they read."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.nodes = [node for node in model.graph if not is_carrier(node)]
        self._origins: dict[ir.Value, Origin] = {}

    def origin(self, value: ir.Value) -> Origin:
        """Return where a value comes from."""
        if value not in self._origins:
            self._origins[value] = _origin(value)
        return self._origins[value]

    def origins(self, node: ir.Node) -> list[Origin | None]:
        """Return the origins of a node's inputs; None for one that is left out."""
        return [None if value is None else self.origin(value) for value in node.inputs]

    def readers(self, value: ir.Value) -> Iterator[ir.Node]:
        """Yield the nodes that read a value, also through carriers."""
        for node, index in value.uses():
            if not is_carrier(node):
                yield node
            elif index == 0:
                for result in node.outputs:
                    yield from self.readers(result)


def is_carrier(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx", "com.microsoft") and node.op_type in _CARRIERS


def _origin(value: ir.Value) -> Origin:
    dequantized_by: ir.Node | None = None
    while (node := value.producer()) is not None and is_carrier(node):
        if node.op_type == "Constant":
            value = _stored(node, value)
            break
        if node.op_type == "DequantizeLinear":
            dequantized_by = dequantized_by or node
        if node.inputs[0] is None:
            break
        value = node.inputs[0]
    return Origin(value, dequantized_by)


_CONSTANTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def _stored(node: ir.Node, value: ir.Value) -> ir.Value:
    """Return the value of a Constant node with its numbers."""
    if value.const_value is not None:
        return value
    if "value" in node.attributes:
        return ir.Value(name=value.name, const_value=node.attributes["value"].as_tensor())
    for name, dtype in _CONSTANTS.items():
        if name in node.attributes:
            numbers = np.array(node.attributes[name].value, dtype)
            return ir.Value(name=value.name, const_value=ir.tensor(numbers))
    return value


def dequantize(stored: Array, node: ir.Node) -> Array:
    """Return the numbers of DequantizeLinear (ONNX operators, opset 21, with `axis` and `block_size`)."""
    scale, zero = grid_of(stored, node)
    return (stored.astype(np.float32) - zero) * scale


def grid_of(stored: Array, node: ir.Node) -> tuple[Array, Array]:
    """Return the scale and the zero point of each element, float32; a scale that no constant has is NaN."""
    scale, zero = parameters_of(node)
    axis = node.attributes.get_int("axis", 1)
    return _spread(scale, stored.shape, axis), _spread(zero, stored.shape, axis)


def parameters_of(node: ir.Node) -> tuple[Array, Array]:
    """Return scale and zero point of a DequantizeLinear as float32; NaN where nodes compute them."""
    scale, zero = (_parameter(node, index) for index in (1, 2))
    if scale is None:
        return np.full((), np.nan, np.float32), np.zeros((), np.float32)
    return scale, np.zeros_like(scale) if zero is None else zero


def _parameter(node: ir.Node, index: int) -> Array | None:
    value = node.inputs[index] if len(node.inputs) > index else None
    found = None if value is None else _origin(value).value.const_value
    return None if found is None else found.numpy().astype(np.float32)


def _spread(parameter: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Return a scale per tensor, channel or block with an entry for each element."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if parameter.ndim == 1:
        sides = [1] * len(shape)
        sides[axis] = -1
        return parameter.reshape(sides)
    block = -(-shape[axis] // parameter.shape[axis])
    return np.repeat(parameter, block, axis=axis)[tuple(slice(0, size) for size in shape)]
