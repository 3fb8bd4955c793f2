"""A source whose channels are divided by the factors that an artefact declares: the same function.

    Given   y = f(W x + b),  z = V y             Result  y / s = f((W x + b) / s),  z = (V s) (y / s)

f is homogeneous in each channel: Relu, PRelu, pooling, a sum of two such (Nagel et al. 2019, section 4.1). Nothing is
taken on trust: where an operator reads such channels that does not pass factors on, the source stays as it is, and the
artefact's weights are not its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import QuantizationNote
from onnxport.samples.domain import without_functions
from onnxport.validate.translation.constants import Constants
from onnxport.validate.translation.layouts.sizes import fix_sizes, known_sizes

_IMAGE_RANK = 4


@dataclass(frozen=True)
class _Scaled:
    """A value whose channels are divided.

    Attributes:
        factors: float32, one for each index along `axis`.
    """

    factors: Array
    axis: int


class _Refused(Exception):
    """An operator that reads divided channels and does not pass factors on."""


class ChannelDivider:
    """Divides the channels of a source.

    Args:
        sizes: of the inputs; they tell the axes of all values.
    """

    def __init__(self, source: Model, sizes: Mapping[str, Sequence[int]]) -> None:
        self._source = without_functions(source)
        sized = self._source.clone()
        fix_sizes(sized.ir, sized.opset, sizes, folds=False)
        self._sizes = known_sizes(sized.graph)

    def divide(self, factors: Mapping[str, Array]) -> Model | None:
        """Return the source with these channels divided; None where something reads them that passes no factors on."""
        copy = self._source.clone()
        try:
            _Division(copy, factors, self._sizes).run()
        except _Refused:
            return None
        return copy


def divide_channels(
    source: Model, note: QuantizationNote | None, sizes: Mapping[str, Sequence[int]]
) -> Model:
    """Return the source with its channels divided as `note` declares; itself where nothing or too much is declared."""
    if note is None or not note.factors:
        return source
    return ChannelDivider(source, sizes).divide(note.factors) or source


class _Division:
    def __init__(
        self, model: Model, factors: Mapping[str, Array], sizes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.graph, self.constants = model.graph, Constants(model.opset, "")
        self._sizes = dict(sizes)
        self.scaled: dict[ir.Value, _Scaled] = {}
        self._left = dict(factors)

    def run(self) -> None:
        for node in list(self.graph):
            read = [value for value in node.inputs if value is not None and value in self.scaled]
            if read:
                self._pass_on(node, read)
            for value in node.outputs:
                factors = self._left.pop(value.name or "", None)
                if factors is not None:
                    self._divide(node, value, factors)
        users = [(user, value) for value in self.scaled for user, _ in value.uses()]
        if (
            self._left
            or any(value.is_graph_output() for value in self.scaled)
            or any(user.graph is not self.graph for user, _ in users)
        ):
            raise _Refused

    def sizes(self, value: ir.Value) -> tuple[int, ...]:
        """Return the sizes of a value; _Refused: they are not known."""
        found = self._sizes.get(value.name or "")
        if found is None:
            raise _Refused
        return found

    def _divide(self, node: ir.Node, value: ir.Value, factors: Array) -> None:
        sizes = self.sizes(value)
        if value in self.scaled or len(sizes) not in (2, _IMAGE_RANK) or value.is_graph_output():
            raise _Refused
        # A product's channels: where its source has them last, Transposes come first.
        axis = 1 if sizes[1] == len(factors) else len(sizes) - 1
        if sizes[axis] != len(factors):
            raise _Refused
        by = 1 / self._along(factors, axis, len(sizes))
        divided = self._multiply(value, by, after=node)
        divided.name = f"{value.name}.by_channel"  # as quantize names it
        self._sizes[divided.name or ""] = sizes
        value.replace_all_uses_with(divided)
        maker = divided.producer()
        assert maker is not None
        maker.replace_input_with(0, value)
        self.scaled[divided] = _Scaled(factors, axis)

    def _pass_on(self, node: ir.Node, read: list[ir.Value]) -> None:
        if node.domain not in ("", "ai.onnx"):
            raise _Refused
        if node.op_type in ("Shape", "Size"):
            return
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            self._multiply_weight(node, read)
            return
        rule = _RULES.get(node.op_type)
        found = rule(self, node, read) if rule is not None and len(node.outputs) == 1 else None
        if found is None:
            raise _Refused
        self.scaled[node.outputs[0]] = found

    def _multiply_weight(self, node: ir.Node, read: list[ir.Value]) -> None:
        """Multiply the weight of a product by the factors of its operand."""
        operand = node.inputs[1]
        weight = self.constants.get(operand)
        if read != [node.inputs[0]] or weight is None or operand is None:
            raise _Refused
        scaled, shape = self.scaled[read[0]], weight.values.shape
        rank = len(self.sizes(read[0]))
        if node.op_type == "Conv":
            groups = node.attributes.get_int("group", 1)
            if scaled.axis != 1 or shape[1] * groups != len(scaled.factors):
                raise _Refused
            rows = np.repeat(scaled.factors.reshape(groups, 1, -1), shape[0] // groups, axis=1)
            by = rows.reshape(shape[:2] + (1,) * (len(shape) - 2))
        else:
            is_turned = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
            inputs = shape[1 if is_turned else 0]
            is_plain = node.op_type == "MatMul" or not node.attributes.get_int("transA", 0)
            if len(shape) != 2 or scaled.axis != rank - 1 or inputs != len(scaled.factors) or not is_plain:
                raise _Refused
            by = scaled.factors[None, :] if is_turned else scaled.factors[:, None]
        node.replace_input_with(1, self._multiply(operand, by, before=node))

    def _multiply(
        self, value: ir.Value, by: Array, *, after: ir.Node | None = None, before: ir.Node | None = None
    ) -> ir.Value:
        name = f"{value.name}/by channel.{len(self.graph)}"
        constant = add_initializer(self.graph, f"{name}.factors", np.asarray(by, np.float32))
        result = ir.Value(name=name, type=value.type, shape=value.shape)
        node = ir.Node("", "Mul", [value, constant], outputs=[result], name=name)
        if after is not None:
            self.graph.insert_after(after, node)
        elif before is not None:
            self.graph.insert_before(before, node)
        return result

    def _along(self, factors: Array, axis: int, rank: int) -> Array:
        return factors.reshape([-1 if each == axis else 1 for each in range(rank)])


# ---- rules: what a node makes of divided channels; None where it passes no factors on

_Rule = Callable[[_Division, ir.Node, list[ir.Value]], _Scaled | None]


def _keep(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Operators of one operand that are homogeneous element by element."""
    return division.scaled[read[0]] if read == [node.inputs[0]] else None


def _slope(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """PRelu with a constant slope."""
    return _keep(division, node, read) if division.constants.get(node.inputs[1]) is not None else None


def _relu(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Clip from 0 up, and Max with 0."""
    bounds = [None if each is None else division.constants.number(each) for each in node.inputs[1:3]]
    if node.op_type == "Clip":
        low, high = (*bounds, None, None)[:2]
        is_open = high is None and len([each for each in node.inputs[2:3] if each is not None]) == 0
        return _keep(division, node, read) if low == 0 and is_open else None
    return _keep(division, node, read) if len(node.inputs) == 2 and bounds == [0] else None


def _pool(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Pooling, and Resize of what is read."""
    found = _keep(division, node, read)
    sizes = [division.sizes(value)[1:2] for value in (read[0], node.outputs[0])]
    is_cut = node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return found if found is not None and found.axis == 1 and sizes[0] == sizes[1] and not is_cut else None


def _transpose(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    found, order = division.scaled[read[0]], node.attributes.get_ints("perm", ())
    return replace(found, axis=list(order).index(found.axis)) if order else None


def _mean(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """ReduceMean and ReduceMax of an image's pixels."""
    found, rank = division.scaled[read[0]], len(division.sizes(read[0]))
    axes = _axes(division, node, rank)
    if read != [node.inputs[0]] or not axes or found.axis in axes:
        return None
    if node.attributes.get_int("keepdims", 1):
        return found
    return replace(found, axis=found.axis - sum(each < found.axis for each in axes))


def _axes(division: _Division, node: ir.Node, rank: int) -> list[int]:
    given = division.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = node.attributes.get_ints("axes", ()) if given is None else given.values.reshape(-1)
    return [int(each) % rank for each in axes]


def _pad(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Pad with zeros, or with what stands at the border, of no channels."""
    found = division.scaled[read[0]]
    given = division.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    pads = node.attributes.get_ints("pads", ()) if given is None else given.values.reshape(-1)
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    value = node.attributes.get_float("value", 0.0) if filled is None else division.constants.number(filled)
    has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
    if read != [node.inputs[0]] or not len(pads) or value != 0 or has_axes:
        return None
    return None if pads[found.axis] or pads[found.axis + len(pads) // 2] else found


def _reshape(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Flatten and its like, from an image to a row, and what changes axes of size 1 behind channels only."""
    found, before, after = division.scaled[read[0]], division.sizes(read[0]), division.sizes(node.outputs[0])
    behind, left = before[1:], after[1:]
    if read != [node.inputs[0]] or prod(behind) != prod(left):
        return None
    if len(after) == 2 and found.axis == 1:
        return _Scaled(np.repeat(found.factors, prod(behind[1:])), 1)
    if len(after) == 2 and found.axis == len(before) - 1:
        return _Scaled(np.tile(found.factors, prod(behind[:-1])), 1)
    is_kept = found.axis == 1 and left[:1] == behind[:1]
    return found if is_kept else None


def _sum(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Add and Sum of what is divided alike."""
    found = [division.scaled.get(value) for value in node.inputs if value is not None]
    first = found[0]
    ranks = {len(division.sizes(value)) for value in node.inputs if value in division.scaled}
    if first is None or len(ranks) != 1:
        return None
    for each in found:
        if each is None or each.axis != first.axis or not np.array_equal(each.factors, first.factors):
            return None
    return first


def _gate(division: _Division, node: ir.Node, read: list[ir.Value]) -> _Scaled | None:
    """Mul by what is not divided."""
    other = next((value for value in node.inputs if value is not read[0]), None)
    if len(read) != 1 or other is None:
        return None
    found, sizes, made = division.scaled[read[0]], division.sizes(read[0]), division.sizes(node.outputs[0])
    is_same = len(sizes) == len(made) and sizes[found.axis] == made[found.axis]
    return found if is_same else None


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys("Relu LeakyRelu Identity Dropout".split(), _keep),
    "PRelu": _slope,
    **dict.fromkeys(("Clip", "Max"), _relu),
    **dict.fromkeys("MaxPool AveragePool GlobalAveragePool GlobalMaxPool Resize Upsample".split(), _pool),
    "Transpose": _transpose,
    **dict.fromkeys(("ReduceMean", "ReduceMax"), _mean),
    "Pad": _pad,
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Add", "Sum"), _sum),
    "Mul": _gate,
}
