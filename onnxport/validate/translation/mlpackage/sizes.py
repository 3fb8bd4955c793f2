"""MIL's operators on sizes and indices as ONNX's, and those that make a tensor of given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.graph_writer import NotLifted
from onnxport.validate.translation.mlpackage.lift import OperatorView


def _shape(op: OperatorView) -> None:
    op.emit(op.add("Cast", [op.add("Shape", [op.value("x")])], to=int(ir.DataType.INT32)))


def _tile(op: OperatorView) -> None:
    op.emit(op.add("Tile", [op.value("x"), _wide(op, "reps")]))


def _fill(op: OperatorView) -> None:
    number = op.number(np.asarray(op.constant("value", 0.0)).reshape(()))
    op.emit(op.add("Expand", [number, _wide(op, "shape")]))


def _range(op: OperatorView) -> None:
    operands = [op.value(each) for each in ("start", "end", "step")]
    op.emit(op.add("Range", [op.add("Squeeze", [each]) for each in operands]))


def _wide(op: OperatorView, name: str) -> ir.Value:
    """Return sizes in the type that ONNX has them in."""
    return op.add("Cast", [op.value(name)], to=int(ir.DataType.INT64))


def _floor_div(op: OperatorView) -> None:
    """Integers of 32 bits are exact in float64, and so is the floor of their quotient."""
    operands = [op.value(each) for each in ("x", "y")]
    if not _is_integer(op):
        op.emit(op.add("Floor", [op.add("Div", operands)]))
        return
    wide = [op.add("Cast", [each], to=int(ir.DataType.DOUBLE)) for each in operands]
    floor = op.add("Floor", [op.add("Div", wide)])
    op.emit(op.add("Cast", [floor], to=int(ir.DataType.INT32)))


def _mod(op: OperatorView) -> None:
    """The remainder of floor_div has the divisor's sign, as that of ONNX's Mod without fmod, which takes integers."""
    if not _is_integer(op):
        raise NotLifted("mod of floats")
    op.emit(op.add("Mod", [op.value("x"), op.value("y")]))


def _is_integer(op: OperatorView) -> bool:
    return {op.dtype(each) for each in ("x", "y")} == {"int32"}


OF_SIZES: Mapping[str, Callable[[OperatorView], None]] = {
    "shape": _shape,
    "tile": _tile,
    "fill": _fill,
    "range_1d": _range,
    "floor_div": _floor_div,
    "mod": _mod,
}
