"""Faults put into a quantized `.mlpackage`: one number or one setting, as a bug or a damaged disk would change it."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.formats.mlpackage.files import messages

Array = np.ndarray[Any, np.dtype[Any]]
_FOLDER = Path("Data", "com.apple.CoreML")
_HEADER = 64  # bytes in front of an array in weight.bin; the size is at 8, the place of the data at 16
_TYPES = {10: np.float16, 11: np.float32, 21: np.int8, 31: np.uint8, 23: np.int32}  # MIL.DataType


class NoPlace(Exception):
    """The file has no place for the fault."""


class Contents:
    """A package that is changed.

    Attributes:
        operations: of the main function, in order.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER
        self.spec = messages("Model").Model.FromString((self._folder / "model.mlmodel").read_bytes())
        (function,) = self.spec.mlProgram.functions.values()
        self.operations = function.block_specializations[function.opset].operations
        self._weights = np.fromfile(self._folder / "weights" / "weight.bin", np.uint8)
        self.makers = {value.name: each for each in self.operations for value in each.outputs}

    def save(self) -> None:
        (self._folder / "model.mlmodel").write_bytes(self.spec.SerializeToString())
        self._weights.tofile(self._folder / "weights" / "weight.bin")

    def of(self, *types: str) -> list[Any]:
        return [each for each in self.operations if each.type in types]

    def bound(self, operation: Any, name: str) -> Any:
        """Return the message of a constant parameter, of its own, so that a change reaches no other operator."""
        if name in operation.attributes:
            return operation.attributes[name]
        if name not in operation.inputs:
            raise NoPlace
        (argument,) = operation.inputs[name].arguments
        if argument.WhichOneof("binding") == "name":
            maker = self.makers.get(argument.name)
            if maker is None or maker.type != "const":
                raise NoPlace
            value = maker.attributes["val"]
            argument.value.CopyFrom(value)
        return argument.value

    def numbers(self, value: Any) -> Array:
        """Return an array of the weight file, which may be changed in place."""
        if value.WhichOneof("value") != "blobFileValue":
            raise NoPlace
        header = self._weights[value.blobFileValue.offset :][:_HEADER].view(np.uint64)
        size, start = int(header[1]), int(header[2])
        found: Array = self._weights[start : start + size].view(_TYPES[value.type.tensorType.dataType])
        return found.reshape([each.constant.size for each in value.type.tensorType.dimensions])

    def change(self, value: Any, function: Callable[[Array], Array]) -> None:
        """Replace the numbers of a constant, wherever they are."""
        if value.WhichOneof("value") == "blobFileValue":
            numbers = self.numbers(value)
            numbers[...] = function(numbers.copy())
            return
        tensor = value.immediateValue.tensor
        if tensor.WhichOneof("value") == "bytes":
            dtype = _TYPES[value.type.tensorType.dataType]
            held_bytes = np.frombuffer(tensor.bytes.values, dtype)
            tensor.bytes.values = function(held_bytes.copy()).astype(dtype).tobytes()
            return
        held = getattr(tensor, tensor.WhichOneof("value")).values
        changed = function(np.array(held)).tolist()
        del held[:]
        held.extend(changed)


Fault = Callable[[Contents, random.Random], None]


def put(fault: Fault, source: Path, target: Path, seed: int = 0) -> Path:
    """Write the package at `source` with a fault in it.

    Raises:
        NoPlace: it has none for it.
    """
    shutil.copytree(source, target)
    contents = Contents(target)
    fault(contents, random.Random(seed))
    contents.save()
    return target


def one(draw: random.Random, places: Sequence[Any]) -> Any:
    if not places:
        raise NoPlace
    return draw.choice(places)


def _stored(contents: Contents, draw: random.Random) -> Any:
    return one(draw, contents.of("constexpr_affine_dequantize"))


def _weights(contents: Contents) -> list[Array]:
    """Return the stored weights of products, as they lie in the file."""
    found = [
        contents.bound(each, "quantized_data")
        for each in contents.of("constexpr_affine_dequantize")
        if each.inputs or each.attributes
    ]
    for each in contents.of("conv", "linear"):
        with contextlib.suppress(NoPlace):
            found.append(contents.bound(each, "weight"))
    return [contents.numbers(each) for each in found if each.WhichOneof("value") == "blobFileValue"]


def _large(values: Array) -> list[int]:
    """Return the places of floats that are no small part of the largest, of integers above five steps."""
    sizes = np.abs(values.astype(np.float32))
    least = 5 if values.dtype == np.int8 else sizes.max() / 20
    return [int(each) for each in np.flatnonzero(sizes > least)]


def weight_off(contents: Contents, draw: random.Random) -> None:
    """A weight is three steps off, or a tenth where it is a float."""
    values = one(draw, _weights(contents)).reshape(-1)
    if values.dtype.kind == "f":
        values[draw.choice(_large(values))] *= values.dtype.type(1.1)
        return
    place = draw.randrange(values.size)
    values[place] += 3 if values[place] < 100 else -3


def weight_sign(contents: Contents, draw: random.Random) -> None:
    """A weight has another sign."""
    values = one(draw, _weights(contents)).reshape(-1)
    place = draw.choice(_large(values))
    values[place] = -values[place]


def weight_scale(contents: Contents, draw: random.Random) -> None:
    """The scale of a channel is 2 % too large."""

    def larger(scale: Array) -> Array:
        scale.reshape(-1)[draw.randrange(scale.size)] *= np.float32(1.02)
        return scale

    if contents.of("constexpr_affine_dequantize"):
        contents.change(contents.bound(_stored(contents, draw), "scale"), larger)
        return
    channels = one(draw, _weights(contents))
    place = draw.choice([place for place, each in enumerate(channels) if each.any()])
    channels[place] *= channels.dtype.type(1.02)


def scales_of_other_channels(contents: Contents, draw: random.Random) -> None:
    contents.change(contents.bound(_stored(contents, draw), "scale"), lambda scale: scale[::-1])


def filters_swapped(contents: Contents, draw: random.Random) -> None:
    """Two output channels of a product."""
    values = one(draw, [each for each in _weights(contents) if len(each) > 1])
    first, second = draw.sample(range(len(values)), 2)
    values[[first, second]] = values[[second, first]]


def _bias(contents: Contents, draw: random.Random) -> Any:
    return contents.bound(
        one(draw, [each for each in contents.of("conv", "linear") if "bias" in each.inputs]), "bias"
    )


def bias_dropped(contents: Contents, draw: random.Random) -> None:
    contents.change(_bias(contents, draw), lambda bias: bias * 0)


def bias_wrong(contents: Contents, draw: random.Random) -> None:
    """The largest bias of a product is 10 % off."""

    def wrong(bias: Array) -> Array:
        bias[np.argmax(np.abs(bias))] *= np.float32(1.1)
        return bias

    contents.change(_bias(contents, draw), wrong)


def activation_dropped(contents: Contents, draw: random.Random) -> None:
    one(draw, contents.of("relu", "relu6", "sigmoid", "tanh")).type = "identity"


def activation_replaced(contents: Contents, draw: random.Random) -> None:
    one(draw, contents.of("sigmoid", "tanh", "relu")).type = "abs"


def padding_moved(contents: Contents, draw: random.Random) -> None:
    """A row of padding in front is one behind."""

    def moved(pads: Array) -> Array:
        if not pads[0]:
            raise NoPlace
        return pads + np.array([-1, 1, *(0 for _ in pads[2:])])

    contents.change(contents.bound(one(draw, contents.of("conv", "max_pool")), "pad"), moved)


def slope_changed(contents: Contents, draw: random.Random) -> None:
    gates = contents.of("leaky_relu", "sigmoid_hard", "elu", "clip")
    contents.change(contents.bound(one(draw, gates), "alpha"), lambda alpha: alpha + 0.05)


def softmax_along_another_axis(contents: Contents, draw: random.Random) -> None:
    contents.change(contents.bound(one(draw, contents.of("softmax")), "axis"), lambda axis: axis * 0)


def operands_swapped(contents: Contents, draw: random.Random) -> None:
    """Two operands of a concatenation or a difference."""
    node = one(draw, contents.of("concat", "sub", "real_div"))
    if node.type == "concat":
        values = node.inputs["values"].arguments
        names = [each.name for each in values][::-1]
        for each, name in zip(values, names, strict=True):
            each.name = name
        return
    first, second = (node.inputs[each].arguments[0] for each in "xy")
    kept = type(first).FromString(first.SerializeToString())
    first.CopyFrom(second)
    second.CopyFrom(kept)


def other_operand(contents: Contents, draw: random.Random) -> None:
    """A sum reads the result of another operator, of the same size."""
    places = []
    known: list[Any] = []
    for each in contents.operations:
        if each.type == "add" and each.inputs["x"].arguments[0].name in contents.makers:
            given = {each.inputs[side].arguments[0].name for side in "xy"}
            like = each.outputs[0].type.SerializeToString()
            places += [
                (each, value.name)
                for value in known
                if value.type.SerializeToString() == like and value.name not in given
            ]
        known += each.outputs if each.type in ("conv", "relu", "mul") else []
    node, name = one(draw, places)
    node.inputs["x"].arguments[0].name = name


def zero_point_of_weight(contents: Contents, draw: random.Random) -> None:
    stored = _stored(contents, draw)
    count = contents.numbers(contents.bound(stored, "quantized_data")).shape[0]
    tensor = contents.bound(stored, "zero_point").immediateValue.tensor
    if len(tensor.bytes.values) not in (0, count):  # zeros are left out
        raise NoPlace
    tensor.bytes.values = b"\1" * count


def _quantizing_scale(contents: Contents, operation: Any) -> Any:
    """Return the scale of `quantize`, or of the division in front of a rounding that stands for it."""
    return contents.bound(operation, "scale" if operation.type == "quantize" else "y")


def grid_wider_at_one_end(contents: Contents, draw: random.Random) -> None:
    """What is quantized by one scale is de-quantized by another."""
    quantized = one(draw, contents.of("quantize", "real_div"))
    contents.change(_quantizing_scale(contents, quantized), lambda number: number * 1.05)


def _behind(contents: Contents, operation: Any, type_: str) -> list[Any]:
    """Return the nearest operators of a type that read an operator's result, directly or through others."""
    found, names = [], {operation.outputs[0].name}
    for each in contents.operations:
        given = {argument.name for bound in each.inputs.values() for argument in bound.arguments}
        if names & given and each.type == type_:
            found.append(each)
        elif names & given and each.type in ("round", "clip", "cast"):
            names.add(each.outputs[0].name)
    return found


def grid_cut_in_half(contents: Contents, draw: random.Random) -> None:
    """A grid reaches half of the values that calibration saw."""
    quantized = one(draw, contents.of("quantize", "real_div"))
    back, scale = ("dequantize", "scale") if quantized.type == "quantize" else ("mul", "y")
    contents.change(_quantizing_scale(contents, quantized), lambda number: number / 2)
    for each in _behind(contents, quantized, back):
        contents.change(contents.bound(each, scale), lambda number: number / 2)


def rounding_dropped(contents: Contents, draw: random.Random) -> None:
    """The cast to integers cuts off, where it rounded."""
    one(draw, contents.of("round")).type = "identity"


def grid_saturates_early(contents: Contents, draw: random.Random) -> None:
    """The largest integer of a grid is one less."""
    contents.change(contents.bound(one(draw, contents.of("clip")), "beta"), lambda most: most - 1)


def mean_over_one_axis(contents: Contents, draw: random.Random) -> None:
    means = contents.bound(one(draw, contents.of("reduce_mean")), "axes")
    contents.change(means, lambda axes: axes[:1])


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
        activation_replaced,
        padding_moved,
        slope_changed,
        softmax_along_another_axis,
        operands_swapped,
        other_operand,
        zero_point_of_weight,
        grid_wider_at_one_end,
        grid_cut_in_half,
        grid_saturates_early,
        rounding_dropped,
        mean_over_one_axis,
    )
}
