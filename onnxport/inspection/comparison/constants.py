"""How the numbers of two constants differ, and the grids of two quantized values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import dtype_name
from onnxport.inspection.comparison.report import Detail
from onnxport.inspection.comparison.view import Origin, grid_of, parameters_of

_FEW = 8  # elements that are shown in words
# In steps of the coarser one, two constants of at most this difference are the same numbers, stored otherwise: a grid
# may clip its ends by a little more than half a step; folding in another order moves a float by some units.
_SAME = {"grid": 1.0, "float": 4.0}


def compare_constants(name: str, one: Origin, other: Origin) -> Detail | None:
    """Return what differs between two constants; None for equal numbers that are stored alike."""
    before, after = one.numbers, other.numbers
    stored = storage_of(one), storage_of(other)
    if before.shape != after.shape:
        return Detail(kind="weight", what=name, before=_words(before), after=_words(after))
    if before.dtype.kind not in "biufc" or after.dtype.kind not in "biufc":
        if one.key == other.key:
            return None
        return Detail(kind="weight", what=name, before=_words(before), after=_words(after))
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.complex128 if "c" in (before.dtype.kind, after.dtype.kind) else np.float64
        # Infinite numbers are equal, too, and so are those that are none.
        equal = (before == after) | ((before != before) & (after != after))
        differences = np.where(equal, 0, np.abs(before.astype(wide) - after.astype(wide)))
    differs = differences != 0
    if stored[0] == stored[1] and not differs.any():
        return None
    if np.all(differences <= np.maximum(_reach(one), _reach(other))):
        return Detail(kind="storage", what=name, before=stored[0], after=stored[1])
    if before.size <= _FEW:
        return Detail(kind="weight", what=name, before=_words(before), after=_words(after))
    worst = np.where(np.isnan(differences), np.inf, differences)
    place = np.unravel_index(int(np.argmax(worst)), before.shape)
    where = ",".join(map(str, place))
    words = [f"{each[place]:.6g}" for each in (before, after)]
    if stored[0] != stored[1]:
        words = [f"{word} ({how})" for word, how in zip(words, stored, strict=True)]
    return Detail(
        kind="weight",
        what=f"{name}, {int(differs.sum()):,} of {differs.size:,} elements, most at [{where}]",
        before=words[0],
        after=words[1],
    )


def _reach(origin: Origin) -> Array:
    """Return how far the same number may be at each element of a constant."""
    numbers = origin.numbers
    if origin.dequantized_by is not None and _is_stored_on_a_grid(origin):
        assert origin.value.const_value is not None
        scale, _ = grid_of(origin.value.const_value.numpy(), origin.dequantized_by)
        return _SAME["grid"] * np.abs(scale).astype(np.float64)
    if numbers.dtype.kind != "f":
        return np.zeros(())
    with np.errstate(over="ignore", invalid="ignore"):  # of the largest float and of infinity
        return _SAME["float"] * np.spacing(np.abs(numbers)).astype(np.float64)


def _is_stored_on_a_grid(origin: Origin) -> bool:
    """Return whether a constant is in the file as integers; one in floats may be quantized at run time."""
    assert origin.value.const_value is not None
    return origin.dequantized_by is not None and not origin.value.const_value.dtype.is_floating_point()


def storage_of(origin: Origin) -> str:
    """Return the type of a stored constant, and how many numbers share a scale: "int8 per channel"."""
    assert origin.value.const_value is not None
    dtype = dtype_name(origin.value.const_value.dtype)
    node = origin.dequantized_by
    return dtype if node is None else f"{dtype} {_grain(node)}"


def _grain(node: ir.Node) -> str:
    scale, _ = parameters_of(node)
    return "per tensor" if scale.size == 1 else "per channel" if scale.ndim == 1 else "per block"


def compare_grids(name: str, one: ir.Node | None, other: ir.Node | None) -> Detail | None:
    """Return what differs between the DequantizeLinear nodes behind a value; None for the same numbers."""
    if one is None or other is None:
        if one is other:
            return None
        words = ["float" if node is None else f"{_type(node)} {_grain(node)}" for node in (one, other)]
        return Detail(kind="storage", what=name, before=words[0], after=words[1])
    grids = [(*parameters_of(node), _type(node)) for node in (one, other)]
    equal = all(
        np.array_equal(mine, its, equal_nan=True)
        for mine, its in zip(grids[0][:2], grids[1][:2], strict=True)
    )
    if equal and grids[0][2] == grids[1][2]:
        return None
    words = [f"{dtype}, scale {_words(scale)}, zero point {_words(zero)}" for scale, zero, dtype in grids]
    return Detail(kind="grid", what=name, before=words[0], after=words[1])


def _type(node: ir.Node) -> str:
    """Return the integer type that a DequantizeLinear reads."""
    for value in (node.inputs[2] if len(node.inputs) > 2 else None, node.inputs[0]):
        if value is not None and value.dtype is not None:
            return dtype_name(value.dtype)
    return "integers"


def _words(numbers: Array) -> str:
    if numbers.size <= _FEW:
        return " ".join(np.array2string(numbers, precision=6, separator=", ").split())
    return f"{numbers.dtype} {list(numbers.shape)}"
