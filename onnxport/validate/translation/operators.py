"""Operators in one form whatever the opset wrote: attributes with their defaults, constants where they belong.

Opsets moved settings from attributes to inputs (axes, bounds, pads) and changed defaults. What a setting means is
compared, so a model that was lifted agrees with its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.rounding_bounds import Rounded, is_float

Operand = ir.Value | Rounded | None
Form = tuple[str, Mapping[str, Any], tuple[Operand, ...]]

COMMUTATIVE = frozenset("Add Mul Max Min Sum Mean And Or Xor Equal".split())
# They change a tensor's shape and nothing else: the result's shape, compared by itself, says what they do.
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
_ONE_AXIS = 13  # the opset from which a softmax is over one axis
# Names that change no result.
_IGNORED = frozenset({"storage_order", "spatial"})


def normalize(name: str, node: ir.Node, operands: Sequence[Operand], value: ir.Value, opset: int) -> Form:
    """Return operator, attributes and operands of a node in one form for all opsets."""
    attributes = _attributes(name, node, opset)
    if name in _VIEWS:
        return "Reshape", {}, tuple(operands[:1])
    operands = list(operands)
    while operands and operands[-1] is None:
        operands.pop()
    settle = _FORMS.get(name)
    if settle is not None:
        attributes, operands = settle(attributes, operands, node)
    index = node.outputs.index(value)
    if index or name == "Split":
        attributes = {**attributes, "output": index}
    if name in _SOFTMAXES and opset < _ONE_AXIS and not _is_last(attributes["axis"], node):
        attributes = {**attributes, "axes": "all from axis on"}
    if name == "ReduceMean" and _is_global(attributes, operands, node):
        return "GlobalAveragePool", {}, tuple(operands[:1])
    return name, attributes, tuple(operands)


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return a value's shape; None where a size is open."""
    if value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(each) for each in value.shape.numpy())


def _attributes(name: str, node: ir.Node, opset: int) -> dict[str, Any]:
    # What a newer opset added has a default that changes nothing.
    found = {**_defaults(node.op_type, node.domain, 0), **_defaults(node.op_type, node.domain, opset)}
    for key, attribute in node.attributes.items():
        if key not in _IGNORED:
            found[key] = _plain(attribute)
    return found


@cache
def _defaults(op: str, domain: str, opset: int) -> Mapping[str, Any]:
    """Return the defaults of an operator's attributes; of the newest opset for 0."""
    domain = "" if domain == "ai.onnx" else domain
    try:
        schema = onnx.defs.get_schema(op, opset, domain) if opset else onnx.defs.get_schema(op, domain)
    except onnx.defs.SchemaError:
        return {}
    found = {}
    for key, attribute in schema.attributes.items():
        if key not in _IGNORED and attribute.default_value.type:
            found[key] = _tidy(onnx.helper.get_attribute_value(attribute.default_value))
    return found


class _Body:
    """The graph of an If, Loop or Scan; equal to nothing, since bodies are not compared."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a graph, which is not compared"


def _plain(attribute: ir.Attr) -> Any:
    """Return an attribute's value as something that compares."""
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        array = value.numpy()
        if is_float(array):  # whatever type holds the numbers
            return ("float", array.shape, array.astype(np.float64).tobytes())
        return (array.dtype.name, array.shape, array.tobytes())
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return _Body()
    return _tidy(value)


def _tidy(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, list | tuple):
        return tuple(_tidy(each) for each in value)
    return value


_Parts = tuple[dict[str, Any], list[Operand]]


def _with_axes(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    """Reduce*: axes are an attribute, then an input (ONNX ReduceMean-18, ReduceSum-13)."""
    axes = operands[1] if len(operands) > 1 else None
    if isinstance(axes, Rounded):
        attributes["axes"], operands = tuple(int(each) for each in axes.values.reshape(-1)), operands[:1]
    attributes["axes"] = _sorted_axes(attributes.get("axes", ()), node)
    if attributes["axes"]:
        attributes.pop("noop_with_empty_axes", None)
    return attributes, operands


def _sorted_axes(axes: Sequence[int], node: ir.Node) -> tuple[int, ...]:
    rank = None if node.inputs[0] is None or node.inputs[0].shape is None else len(node.inputs[0].shape)
    return tuple(sorted(axis % rank if rank else axis for axis in axes))


def _is_global(attributes: Mapping[str, Any], operands: Sequence[Operand], node: ir.Node) -> bool:
    """Return whether a mean is that of all pixels of a channel; axes of size 1 may be left out."""
    data = node.inputs[0]
    rank = None if data is None or data.shape is None else len(data.shape)
    if data is None or rank is None or rank < 3 or not attributes.get("keepdims", 1) or len(operands) > 1:
        return False
    sizes = static_shape(data) or (0,) * rank
    axes = {*attributes["axes"], *(axis for axis in range(2, rank) if sizes[axis] == 1)}
    return axes == set(range(2, rank))


def _softmax(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    """Before opset 13 all axes from `axis` on are one; the last axis alone means the same in both."""
    data = node.inputs[0]
    if data is not None and data.shape is not None:
        attributes["axis"] %= len(data.shape)
    return attributes, operands


def _is_even(attributes: Mapping[str, Any], node: ir.Node) -> bool:
    """Return whether no window of a pool reaches beyond the data, so that rounding sizes up or down is the same."""
    shape = None if node.inputs[0] is None else static_shape(node.inputs[0])
    if shape is None or attributes["auto_pad"] != "NOTSET":
        return False
    kernel, pads, axes = attributes["kernel_shape"], attributes["pads"], len(attributes["kernel_shape"])
    return all(
        (
            shape[2 + axis]
            + pads[axis]
            + pads[axes + axis]
            - attributes["dilations"][axis] * (kernel[axis] - 1)
            - 1
        )
        % attributes["strides"][axis]
        == 0
        for axis in range(axes)
    )


def _is_last(axis: int, node: ir.Node) -> bool:
    """Return whether no axis behind this one has more than one element."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return axis == -1 if shape is None else all(size == 1 for size in tuple(shape)[axis % len(shape) + 1 :])


def _pool(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    axes = len(attributes["kernel_shape"])
    attributes.setdefault("pads", (0,) * 2 * axes)
    attributes.setdefault("strides", (1,) * axes)
    attributes.setdefault("dilations", (1,) * axes)
    if attributes["auto_pad"] == "VALID":
        attributes["auto_pad"] = "NOTSET"
    if attributes.get("ceil_mode") and _is_even(attributes, node):
        attributes["ceil_mode"] = 0
    if not any(attributes["pads"]) and attributes["auto_pad"] == "NOTSET" and not attributes.get("ceil_mode"):
        attributes.pop("count_include_pad", None)
    return attributes, operands


def _window(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    """Conv and its like: the weight has the kernel's shape."""
    attributes.pop("kernel_shape", None)
    return attributes, operands


def _resize(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    """Compare what the mode reads, and sizes by the result's shape where that is known."""
    if len(operands) == 2:  # Resize-10, Upsample-9: scales come second, pixels sit in the corners
        operands = [operands[0], None, operands[1]]
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if attributes.get("mode") != "cubic":
        attributes.pop("cubic_coeff_a", None)
        attributes.pop("exclude_outside", None)
    if attributes.get("mode") != "nearest":
        attributes.pop("nearest_mode", None)
    if attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        attributes.pop("extrapolation_value", None)
        if len(operands) > 1:
            operands[1] = None
    operands = [_empty_is_none(each) for each in operands]
    coordinates = _coordinates(attributes, operands, node)
    return (attributes, operands) if coordinates is None else ({"mode": attributes["mode"]}, coordinates)


def _coordinates(
    attributes: Mapping[str, Any], operands: Sequence[Operand], node: ir.Node
) -> list[Operand] | None:
    """Return the data and, for each axis, where in it each result comes from; None where that is not known.

    What reads the same pixels with the same weights is the same (ONNX Resize-19).
    """
    before, after = (
        None if each is None else static_shape(each) for each in (node.inputs[0], node.outputs[0])
    )
    mode, scales = attributes.get("mode"), operands[2] if len(operands) > 2 else None
    if before is None or after is None or mode not in ("nearest", "linear") or attributes.get("antialias"):
        return None
    if attributes.get("axes") or (scales is not None and not isinstance(scales, Rounded)):
        return None
    given = [new / old for new, old in zip(after, before, strict=True)]
    if isinstance(scales, Rounded):
        given = [float(each) for each in scales.values]
    if min(given) <= 0:
        return None
    found: list[Operand] = [operands[0]]
    for old, new, scale in zip(before, after, given, strict=True):
        mode_of_places = str(attributes["coordinate_transformation_mode"])
        is_same = old == new and scale == 1
        places = np.arange(new, dtype=np.float64) if is_same else _places(mode_of_places, old, new, scale)
        if places is None:
            return None
        if mode == "nearest":
            places = _NEAREST[str(attributes.get("nearest_mode", "round_prefer_floor"))](places)
        found.append(Rounded(np.clip(places, 0, old - 1)))
    return found


def _places(mode: str, old: int, new: int, scale: float) -> Array | None:
    """Return the coordinates in the data of the results along one axis."""
    index = np.arange(new, dtype=np.float64)
    if mode == "asymmetric":
        return index / scale
    if mode == "align_corners":
        return index * (old - 1) / (new - 1) if new > 1 else index * 0
    if mode == "tf_half_pixel_for_nn":
        return (index + 0.5) / scale
    if mode == "pytorch_half_pixel" and new == 1:
        return index * 0
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (index + 0.5) / scale - 0.5
    return None


# Coordinates that float32 rounds may lie just beside a half.
_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "floor": lambda places: np.floor(places + 1e-6),
    "ceil": lambda places: np.ceil(places - 1e-6),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5 - 1e-6),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5 + 1e-6),
}


def _empty_is_none(operand: Operand) -> Operand:
    return None if isinstance(operand, Rounded) and not operand.values.size else operand


def _attribute_input(key: str, place: int) -> Callable[[dict[str, Any], list[Operand], ir.Node], _Parts]:
    """Return the form of an operator whose attribute `key` became input `place`."""

    def settle(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
        if key in attributes:
            value: Array = np.asarray(attributes.pop(key))
            operands += [None] * (place + 1 - len(operands))
            operands[place] = Rounded.exact(value)
        return attributes, operands

    return settle


def _pad(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    attributes, operands = _attribute_input("pads", 1)(attributes, operands, node)
    attributes, operands = _attribute_input("value", 2)(attributes, operands, node)
    if len(operands) > 2 and isinstance(operands[2], Rounded) and not operands[2].values.any():
        operands = operands[:2] + operands[3:]  # zeros, as without it
    return attributes, operands


def _slice(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    """Name all axes and steps, which have defaults since they are inputs."""
    for place, key in enumerate(("starts", "ends", "axes"), 1):
        attributes, operands = _attribute_input(key, place)(attributes, operands, node)
    if len(operands) > 1 and isinstance(operands[1], Rounded):
        count = operands[1].values.size
        operands += [None] * (5 - len(operands))
        operands[3] = operands[3] or Rounded.exact(np.arange(count))
        operands[4] = operands[4] or Rounded.exact(np.ones(count, np.int64))
    return attributes, operands


def _concat(attributes: dict[str, Any], operands: list[Operand], node: ir.Node) -> _Parts:
    shape = node.outputs[0].shape
    if shape is not None:
        attributes["axis"] %= len(shape)
    return attributes, operands


_FORMS: Mapping[str, Callable[[dict[str, Any], list[Operand], ir.Node], _Parts]] = {
    **dict.fromkeys(
        (f"Reduce{each}" for each in "Mean Sum Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()),
        _with_axes,
    ),
    **dict.fromkeys(_SOFTMAXES, _softmax),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), _window),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _attribute_input("axes", 1)),
    "Split": _attribute_input("split", 1),
    "Pad": _pad,
    "Slice": _slice,
    "Concat": _concat,
}
