"""Faults put into a quantized `.tflite` file: one number or one setting, as a bug or a damaged disk would change it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Array = np.ndarray[Any, np.dtype[Any]]
Fault = Callable[[Any, random.Random], None]
_NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_PRODUCTS = (*_CONVOLUTIONS, "FULLY_CONNECTED")


class NoPlace(Exception):
    """The file has no place for the fault."""


def put(fault: Fault, source: Path, target: Path, seed: int = 0) -> Path:
    """Write the file at `source` with a fault in it.

    Raises:
        NoPlace: it has none for it.
    """
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(source.read_bytes(), 0))
    fault(model, random.Random(seed))
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(bytes(builder.Output()))
    return target


def operators(model: Any, *names: str) -> list[Any]:
    def name(operator: Any) -> str:
        code = model.operatorCodes[operator.opcodeIndex]
        return _NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]

    return [each for each in model.subgraphs[0].operators if name(each) in names]


def one(draw: random.Random, places: Sequence[Any]) -> Any:
    if not places:
        raise NoPlace
    return draw.choice(places)


def tensor(model: Any, index: int) -> Any:
    return model.subgraphs[0].tensors[index]


def constant(model: Any, index: int, dtype: Any) -> Array:
    """Return a constant's elements, which may be changed in place."""
    buffer = model.buffers[tensor(model, index).buffer]
    if buffer.data is None or not len(buffer.data):
        raise NoPlace
    buffer.data = np.array(buffer.data, np.uint8)
    found: Array = buffer.data.view(dtype)
    return found


def _weight(model: Any, operator: Any, place: int = 1) -> int:
    """Return the index of a product's stored weight or bias, behind a DEQUANTIZE if there is one."""
    index = int(operator.inputs[place])
    makers = [each for each in operators(model, "DEQUANTIZE") if index in each.outputs]
    return int(makers[0].inputs[0]) if makers else index


# Type of a stored weight -> that of its elements.
_STORED = {schema.TensorType.INT8: np.int8, schema.TensorType.FLOAT16: np.float16}


def _weights(model: Any, *types: int) -> list[tuple[int, int]]:
    """Return the index of each product's stored weight, and the axis of its output channels."""
    places = [
        (_weight(model, each), 3 if kind == "DEPTHWISE_CONV_2D" else 0)
        for kind in _PRODUCTS
        for each in operators(model, kind)
    ]
    return [each for each in places if tensor(model, each[0]).type in (types or _STORED)]


def _int8_weights(model: Any) -> list[int]:
    return [index for index, _ in _weights(model, schema.TensorType.INT8)]


def _numbers(model: Any, index: int) -> Array:
    return constant(model, index, _STORED[tensor(model, index).type])


def weight_off(model: Any, draw: random.Random) -> None:
    """A weight is three steps off, or a tenth where it is a float."""
    values = _numbers(model, one(draw, _weights(model))[0])
    if values.dtype == np.float16:
        values[draw.choice(_large(values))] *= np.float16(1.1)
        return
    place = draw.randrange(values.size)
    values[place] += 3 if values[place] < 100 else -3


def _large(values: Array) -> list[int]:
    """Return the places of floats that are no small part of the largest, of integers above five steps."""
    sizes = np.abs(values.astype(np.float32))
    least = 5 if values.dtype == np.int8 else sizes.max() / 20
    return [int(each) for each in np.flatnonzero(sizes > least)]


def weight_sign(model: Any, draw: random.Random) -> None:
    """A weight has another sign."""
    values = _numbers(model, one(draw, _weights(model))[0])
    place = draw.choice(_large(values))
    values[place] = -values[place]


def weight_scale(model: Any, draw: random.Random) -> None:
    """The scale of a channel is 2 % too large."""
    index, axis = one(draw, _weights(model))
    values = _numbers(model, index)
    if values.dtype == np.float16:
        channels = np.moveaxis(values.reshape(tensor(model, index).shape), axis, 0)
        channels[draw.choice([place for place, each in enumerate(channels) if each.any()])] *= np.float16(
            1.02
        )
        return
    quantization = tensor(model, index).quantization
    quantization.scale = np.array(quantization.scale, np.float32)
    quantization.scale[draw.randrange(len(quantization.scale))] *= np.float32(1.02)


def scales_of_other_channels(model: Any, draw: random.Random) -> None:
    wide = [each for each in _int8_weights(model) if len(tensor(model, each).quantization.scale) > 3]
    quantization = tensor(model, one(draw, wide)).quantization
    quantization.scale = np.array(quantization.scale, np.float32)[::-1].copy()


def filters_swapped(model: Any, draw: random.Random) -> None:
    """Two output channels of a product."""
    places = [(index, axis) for index, axis in _weights(model) if tensor(model, index).shape[axis] > 1]
    index, axis = one(draw, places)
    channels = np.moveaxis(_numbers(model, index).reshape(tensor(model, index).shape), axis, 0)
    first, second = draw.sample(range(len(channels)), 2)
    channels[[first, second]] = channels[[second, first]]


def _biases(model: Any) -> list[Any]:
    kinds = {
        schema.TensorType.INT32: np.int32,
        schema.TensorType.INT64: np.int64,
        schema.TensorType.FLOAT32: np.float32,
        schema.TensorType.FLOAT16: np.float16,
    }
    found = []
    for each in operators(model, *_PRODUCTS):
        if len(each.inputs) > 2 and each.inputs[2] >= 0:
            index = _weight(model, each, 2)
            values = constant(model, index, kinds[tensor(model, index).type])
            if values.any():
                found.append(values)
    return found


def bias_dropped(model: Any, draw: random.Random) -> None:
    one(draw, _biases(model)).fill(0)


def bias_wrong(model: Any, draw: random.Random) -> None:
    """The largest bias of a product is 10 % off."""
    values = one(draw, _biases(model))
    place = int(np.argmax(np.abs(values.astype(np.float64))))
    is_integer = values.dtype.kind == "i"
    values[place] += max(abs(values[place]) // 10, 8) if is_integer else values[place] / 10


def activation_dropped(model: Any, draw: random.Random) -> None:
    kinds = schema.ActivationFunctionType
    fused = [
        each
        for each in model.subgraphs[0].operators
        if getattr(each.builtinOptions, "fusedActivationFunction", 0) in (kinds.RELU, kinds.RELU6)
    ]
    one(draw, fused).builtinOptions.fusedActivationFunction = kinds.NONE


def activation_added(model: Any, draw: random.Random) -> None:
    """A ReLU that the source has not; where the grid begins at 0, or what follows cuts off there, it does nothing."""
    plain = []
    cut = {int(each.inputs[0]) for each in operators(model, "RELU", "RELU6", "RELU_0_TO_1")}
    for each in operators(model, *_PRODUCTS, "ADD"):
        quantization = tensor(model, int(each.outputs[0])).quantization
        zero = (
            None if quantization is None or quantization.zeroPoint is None else int(quantization.zeroPoint[0])
        )
        is_cut = zero == -128 or int(each.outputs[0]) in cut
        if each.builtinOptions.fusedActivationFunction == 0 and not is_cut:
            plain.append(each)
    one(draw, plain).builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.RELU


def padding_moved(model: Any, draw: random.Random) -> None:
    """A row of padding in front is one behind."""
    pads = one(draw, operators(model, "PAD"))
    values = constant(model, int(pads.inputs[1]), np.int32).reshape(-1, 2)
    axis = one(draw, [each for each in (1, 2) if values[each][0]])
    values[axis] += (-1, 1)


def slope_changed(model: Any, draw: random.Random) -> None:
    one(draw, operators(model, "LEAKY_RELU")).builtinOptions.alpha = 0.9


def softmax_scaled(model: Any, draw: random.Random) -> None:
    one(draw, operators(model, "SOFTMAX")).builtinOptions.beta = 1.01


def operands_swapped(model: Any, draw: random.Random) -> None:
    """Two operands of a concatenation or a difference."""
    node = one(draw, operators(model, "CONCATENATION", "SUB"))
    node.inputs = np.array([node.inputs[1], node.inputs[0], *node.inputs[2:]], np.int32)


def other_operand(model: Any, draw: random.Random) -> None:
    """A sum reads another value of the same size and grid type."""
    places = []
    for each in operators(model, "ADD"):
        wanted = tensor(model, int(each.inputs[0]))
        before = {
            int(i) for other in model.subgraphs[0].operators for i in other.outputs if other is not each
        }
        for index in sorted(before):
            given = tensor(model, index)
            is_alike = list(given.shape) == list(wanted.shape) and given.type == wanted.type
            if is_alike and index not in each.inputs and index < int(each.outputs[0]):
                places.append((each, index))
    node, index = one(draw, places)
    node.inputs = np.array([index, *node.inputs[1:]], np.int32)


def zero_point_of_weight(model: Any, draw: random.Random) -> None:
    quantization = tensor(model, one(draw, _int8_weights(model))).quantization
    quantization.zeroPoint = np.ones(len(quantization.scale), np.int64)


def mean_over_one_axis(model: Any, draw: random.Random) -> None:
    means = [each for each in operators(model, "MEAN") if each.builtinOptions.keepDims]
    constant(model, int(one(draw, means).inputs[1]), np.int32)[:] = 1


FAULTS: Mapping[str, Fault] = {
    each.__name__: each
    for each in (
        weight_off,
        weight_sign,
        weight_scale,
        scales_of_other_channels,
        filters_swapped,
        bias_dropped,
        bias_wrong,
        activation_dropped,
        activation_added,
        padding_moved,
        slope_changed,
        softmax_scaled,
        operands_swapped,
        other_operand,
        zero_point_of_weight,
        mean_over_one_axis,
    )
}
