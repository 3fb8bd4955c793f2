"""Groups of tensors of which each channel can have a scale of its own without a node more.

Relu, PRelu, pooling, sums and their like are homogeneous: f(x / s) = f(x) / s for positive s. So the weights of the
products that make such tensors can divide by s, and the weights of those that read them multiply by s again, channel
by channel (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

_IMAGE_RANK = 4


@dataclass(eq=False)
class ChannelGroup:
    """Tensors whose channels, along axis 1, have to be scaled alike.

    Attributes:
        channels: how many.
        values: the tensors, those that products make first.
        producers: the products that make them.
        consumers: the products that read them, each with the number of inputs that a channel has there: several
            behind a Flatten.
    """

    channels: int
    values: list[ir.Value] = field(default_factory=list)
    producers: list[ir.Node] = field(default_factory=list)
    consumers: list[tuple[ir.Node, int]] = field(default_factory=list)
    is_open: bool = False  # whether something else reads them


def find_channel_groups(graph: ir.Graph) -> list[ChannelGroup]:
    """Return the groups that only products and homogeneous operators read."""
    finder = _Finder()
    for node in graph:
        finder.visit(node)
    groups = dict.fromkeys(finder.group(value) for value in finder.known)
    return [
        each
        for each in groups
        if not each.is_open and each.consumers and not any(map(_is_seen_outside, each.values))
    ]


def _is_seen_outside(value: ir.Value) -> bool:
    """Return whether a value is an output of its graph, or is read by a graph inside of a node."""
    maker = value.producer()
    return value.is_graph_output() or any(
        maker is None or user.graph is not maker.graph for user, _ in value.uses()
    )


class _Finder:
    """Walks a graph from its inputs to its outputs."""

    def __init__(self) -> None:
        self.known: dict[ir.Value, ChannelGroup] = {}
        self._joined: dict[ChannelGroup, ChannelGroup] = {}  # to the group that took it in

    def group(self, value: ir.Value) -> ChannelGroup:
        found = self.known[value]
        while found in self._joined:
            found = self._joined[found]
        return found

    def visit(self, node: ir.Node) -> None:
        """Add what a node makes to the group of what it reads, or close that group to scales."""
        read = [value for value in node.inputs if value is not None and value in self.known]
        if is_scalable_product(node):
            if read:
                self._consume(node, read[0])
            self._produce(node)
            return
        if not read:
            return
        rule = _RULES.get(node.op_type) if node.domain == "" else None
        if rule is None or len(node.outputs) != 1 or not rule(self, node, read):
            for value in read:
                self.group(value).is_open = True

    def _produce(self, node: ir.Node) -> None:
        value = node.outputs[0]
        group = ChannelGroup(output_channels(node), [value], [node])
        self.known[value] = group

    def _consume(self, node: ir.Node, value: ir.Value) -> None:
        group = self.group(value)
        inputs = input_channels(node)
        fits = inputs == group.channels if node.op_type == "Conv" else inputs % group.channels == 0
        if fits and (node.op_type == "Conv" or rank_of(value) in (2, None)):
            group.consumers.append((node, inputs // group.channels))
        else:
            group.is_open = True

    def add(self, node: ir.Node, value: ir.Value) -> bool:
        """Add a node's result to the group of an operand."""
        group = self.group(value)
        group.values.append(node.outputs[0])
        self.known[node.outputs[0]] = group
        return True

    def join(self, first: ir.Value, second: ir.Value) -> bool:
        """Make one group of two."""
        one, other = self.group(first), self.group(second)
        if one is other:
            return True
        if one.channels != other.channels:
            return False
        one.values += other.values
        one.producers += other.producers
        one.consumers += other.consumers
        one.is_open |= other.is_open
        self._joined[other] = one
        return True


# ---- rules: what a node makes of scaled channels; False closes the group


def _keep(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """Operators of one operand that treat channels apart."""
    return node.inputs[0] is read[0] and len(read) == 1 and finder.add(node, read[0])


def _slope(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """PRelu with a constant slope."""
    slope = node.inputs[1]
    return slope is not None and slope.const_value is not None and _keep(finder, node, read)


def _resize(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """Resize of pixels."""
    sizes = [static_sizes(value)[1:2] for value in (read[0], node.outputs[0])]
    is_cut = node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    is_same = sizes[0] == sizes[1] == [finder.group(read[0]).channels]
    return is_same and not is_cut and _keep(finder, node, read)


def _flatten(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """Flatten, Reshape and Squeeze from [N, C, H, W] to [N, C * H * W]."""
    before, after = static_sizes(read[0]), static_sizes(node.outputs[0])
    if len(before) != _IMAGE_RANK or len(after) != 2 or None in (*before[1:], after[1]):
        return False
    flat = 1
    for size in before[1:]:
        flat *= size or 0
    return flat == after[1] and _keep(finder, node, read)


def _sum(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """Add of two images that are both scaled."""
    if len(read) != 2 or not all(map(_is_image, read)):
        return False
    return finder.join(*read) and finder.add(node, read[0])


def _gate(finder: _Finder, node: ir.Node, read: list[ir.Value]) -> bool:
    """Mul of an image by one number for each channel that is not scaled, as squeeze-and-excitation has it."""
    if len(read) != 1:
        return False
    gate = next((value for value in node.inputs if value is not read[0]), None)
    if gate is None or not (_is_image(read[0]) and _is_image(gate)):
        return False
    channels = static_sizes(node.outputs[0])[1:2]
    is_same = channels == [finder.group(read[0]).channels]
    return is_same and static_sizes(gate)[2:] == [1, 1] and finder.add(node, read[0])


_RULES: Mapping[str, Callable[[_Finder, ir.Node, list[ir.Value]], bool]] = {
    **dict.fromkeys(
        "Relu LeakyRelu Identity Dropout MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split(), _keep
    ),
    "PRelu": _slope,
    "Resize": _resize,
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze"), _flatten),
    "Add": _sum,
    "Mul": _gate,
}


# ---- products


def is_scalable_product(node: ir.Node) -> bool:
    """Return whether a node multiplies by a constant that is its own, and that scales of channels can change."""
    if node.domain or node.op_type not in ("Conv", "Gemm") or len(node.inputs) < 2:
        return False
    weight, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if weight is None or weight.const_value is None or weight.is_graph_input() or len(weight.uses()) != 1:
        return False
    if weight.dtype != ir.DataType.FLOAT or (bias is not None and bias.const_value is None):
        return False
    if node.op_type == "Conv":
        return len(weight.const_value.shape) == _IMAGE_RANK
    settings = [node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
    return settings == [1.0, 1.0] and not node.attributes.get_int("transA", 0)


def output_channels(node: ir.Node) -> int:
    """Return the number of channels that a product makes."""
    return _sizes(node)[0]


def input_channels(node: ir.Node) -> int:
    """Return the number of channels that a product reads, of all groups together."""
    return _sizes(node)[1]


def _sizes(node: ir.Node) -> tuple[int, int]:
    weight = node.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    first, second, *_ = weight.const_value.shape.numpy()
    if node.op_type == "Conv":
        return first, second * node.attributes.get_int("group", 1)
    return (first, second) if node.attributes.get_int("transB", 0) else (second, first)


# ---- shapes


def rank_of(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def static_sizes(value: ir.Value) -> list[int | None]:
    """Return the sizes of a value, None where they are open; nothing for an unknown rank."""
    return [] if value.shape is None else [each if isinstance(each, int) else None for each in value.shape]


def _is_image(value: ir.Value) -> bool:
    return rank_of(value) == _IMAGE_RANK
