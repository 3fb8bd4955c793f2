"""Settings that name axes, and mean the same although their numbers differ."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxport.validate.translation.forms import Core
from onnxport.validate.translation.operators import static_shape
from onnxport.validate.translation.rounding_bounds import Rounded

# Operators whose axis counts the axes of what they read, which are those of their result.
_OF_ONE_RANK = frozenset({"Softmax", "LogSoftmax", "Hardmax", "Concat"})
# Settings whose numbers mean axes of what an operator reads.
AXES = frozenset({"axis", "axes"})
# Operators that broadcast all of their operands.
_ELEMENTWISE = frozenset(
    "Add Sub Mul Div Min Max Pow Mod Where Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor".split()
)


def long_sizes(sizes: Sequence[int]) -> list[int]:
    """Return the sizes above 1."""
    return [each for each in sizes if each != 1]


def broadcast_alike(core: Core, source: Core) -> bool:
    """Return whether two operators broadcast their operands in the same way but for axes of which all have size 1.

    Given   [16, 1, 1] * [16, 1, 128] and [1, 16, 1] * [1, 16, 128]         Result  both [16, 1] * [16, 128]
    """
    if core.op not in _ELEMENTWISE:
        return False
    ours, theirs = _broadcast(core), _broadcast(source)
    return ours is not None and ours == theirs


def _broadcast(core: Core) -> list[list[int]] | None:
    """Return the sizes of the operands along the axes that their result has; None where they are not known."""
    result, found = static_shape(core.value), []
    for operand in core.operands if result is not None else ():
        constant = operand.values.shape if isinstance(operand, Rounded) else None
        sizes = static_shape(operand) if isinstance(operand, ir.Value) else constant
        if sizes is None or result is None or len(sizes) > len(result):
            return None
        whole = (1,) * (len(result) - len(sizes)) + sizes
        found.append([size for size, wide in zip(whole, result, strict=True) if wide != 1])
    return found or None


def of_other_ranks(core: Core, source: Core) -> bool:
    """Return whether two operators read values of different ranks, so that a number means another axis."""
    found = [
        static_shape(each) for each in (core.operands[0], source.operands[0]) if isinstance(each, ir.Value)
    ]
    known = [len(each) for each in found if each is not None]
    return len(known) == 2 and known[0] != known[1]


def is_same_choice(name: str, core: Core, source: Core) -> bool:
    """Return whether a setting is an order or choice of axes that is the same but for how axes are counted.

    An axis may be counted from the end, and axes of size 1 may stand elsewhere.
    """
    if name == "perm":
        return _move_alike(core, source)
    ours, theirs = (each.attributes.get(name) for each in (core, source))
    if name == "axis" and core.op in _OF_ONE_RANK:
        is_same = _count_axis(ours, core, source) == _count_axis(theirs, core, source)
        if is_same and not of_other_ranks(core, source):
            return True
    elif name != "axes":
        return False
    found = _long_axes(core, ours)
    return found is not None and found == _long_axes(source, theirs)


def _count_axis(axis: object, core: Core, source: Core) -> object:
    """Return an axis counted from the front where either side has a rank: exporters leave ranks out."""
    shape = core.value.shape if core.value.shape is not None else source.value.shape
    return axis % len(shape) if isinstance(axis, int) and shape else axis


def _long_axes(core: Core, axes: object) -> tuple[list[int], list[int]] | None:
    """Return the sizes above 1 of what an operator reads, and which of these it means; None where not known."""
    operand = core.value if core.op == "Concat" else core.operands[0]
    sizes = static_shape(operand) if isinstance(operand, ir.Value) else None
    chosen = axes if isinstance(axes, tuple) else (axes,) if isinstance(axes, int) else None
    if sizes is None or chosen is None:
        return None
    long = [axis for axis, size in enumerate(sizes) if size != 1]
    meant = [axis % len(sizes) for axis in chosen]
    return [sizes[axis] for axis in long], [long.index(axis) for axis in long if axis in meant]


def _move_alike(core: Core, source: Core) -> bool:
    """Return whether two Transposes do the same to the axes of more than one entry, of which these are alike."""
    ours, theirs = _moves(core), _moves(source)
    return ours is not None and ours == theirs


def _moves(core: Core) -> tuple[list[int], list[int]] | None:
    """Return the sizes above 1 of what a Transpose reads, and their order behind it; None where they are not known."""
    operand, order = core.operands[0], core.attributes.get("perm")
    sizes = static_shape(operand) if isinstance(operand, ir.Value) else None
    if sizes is None or order is None:
        return None
    long = [axis for axis, size in enumerate(sizes) if size != 1]
    return [sizes[axis] or 0 for axis in long], [long.index(axis) for axis in order if axis in long]
