"""Fourier transforms of real signals, whose complex numbers become two real tensors: ONNX has no complex ones.

tf2onnx converts a transform only where ComplexAbs alone reads it. TFLite's converter writes a transform of one axis
as one of two, of which the first has size 1, and a Squeeze behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

_LENGTH = 1  # the transform's input that has the lengths
_LAYOUT = frozenset(("Identity", "Reshape", "Squeeze"))
_MAGNITUDE = frozenset(("ComplexAbs", "TFL_COMPLEX_ABS"))
# Operators that read a part of a complex number -> which: 0 real, 1 imaginary. A Cast drops the imaginary part.
_READ_PART = {"Real": 0, "TFL_REAL": 0, "Cast": 0, "Imag": 1, "TFL_IMAG": 1}


def rfft(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Transform the last axis; the readers of its complex numbers read real or imaginary parts instead.

    Raises:
        ValueError: another operator reads them, or the transform is of two axes.
    """
    readers = {reader.type for reader in ctx.find_output_consumers(node.output[0])}
    if readers == {"ComplexAbs"}:
        _convert_magnitude(ctx, node)
        return
    signal, shape = node.input[0], ctx.get_shape(node.input[0])
    _check_lengths(node, shape)
    length = shape[-1]
    turns = np.outer(np.arange(length), np.arange(length // 2 + 1)) % length / length
    options = {"shapes": [[*shape[:-1], turns.shape[1]]], "dtypes": [TensorProto.FLOAT]}
    parts = []
    # Products with matrices: ONNX Runtime's own DFT rounds its angles, and is off by ten times as much.
    for part, wave in (("real", np.cos(2 * np.pi * turns)), ("imaginary", -np.sin(2 * np.pi * turns))):
        matrix = ctx.make_const(f"{name}/{part}/matrix", wave.astype(np.float32)).output[0]
        parts.append(ctx.make_node("MatMul", [signal, matrix], name=f"{name}/{part}", **options).output[0])
    _replace(ctx, node.output[0], parts)
    ctx.remove_node(node.name)


def _convert_magnitude(ctx: Any, node: Any) -> None:
    """Convert it as tf2onnx does."""
    from tf2onnx.onnx_opset import signal

    handler = {"RFFT": signal.RFFTOp, "RFFT2D": signal.RFFT2DOp}[node.type]
    version = max(each for each in (1, 10, 13) if each <= max(ctx.opset, 1))
    getattr(handler, f"version_{version}")(ctx, node)


def _check_lengths(node: Any, shape: Sequence[int] | None) -> None:
    if shape is None or not node.inputs[_LENGTH].is_const():
        raise ValueError("its size is known at run time only")
    *others, length = np.ravel(node.inputs[_LENGTH].get_tensor_value(as_list=False)).tolist()
    if any(size != 1 for size in (*others, *(shape[-2:-1] if others else ()))):
        raise ValueError("it transforms two axes; export a model that transforms one after the other")
    if shape[-1] != length:
        raise ValueError(f"it pads or cuts {shape[-1]} numbers to {length}; do so before the transform")


def _replace(ctx: Any, spectrum: str, parts: Sequence[str]) -> None:
    """Have the readers of a complex tensor read its real and imaginary parts."""
    for reader in ctx.find_output_consumers(spectrum):
        if reader.type in _LAYOUT:
            laid = [_lay_out(ctx, reader, part) for part in parts]
            _become(ctx, reader, "Identity", [laid[0]])
            _replace(ctx, reader.output[0], laid)
        elif reader.type in _MAGNITUDE:
            squares = [ctx.make_node("Mul", [part, part]).output[0] for part in parts]
            _become(ctx, reader, "Sqrt", [ctx.make_node("Add", squares).output[0]])
        elif reader.type in _READ_PART:
            part = parts[_READ_PART[reader.type]]
            if reader.type == "Cast":
                ctx.replace_input(reader, spectrum, part, 0)
            else:
                _become(ctx, reader, "Identity", [part])
        else:
            raise ValueError(f"its complex numbers are read by {reader.type} {reader.name}")


def _lay_out(ctx: Any, reader: Any, part: str) -> str:
    """Return a part as `reader` lays out the complex tensor."""
    from tf2onnx.graph_builder import GraphBuilder

    if reader.type == "Identity":
        return part
    if reader.type == "Squeeze":
        axes = list(reader.attr["squeeze_dims"].ints) if "squeeze_dims" in reader.attr else []
        if not axes:
            raise ValueError(f"Squeeze {reader.name} does not say which axes it drops")
        laid = GraphBuilder(ctx).make_squeeze({"data": part, "axes": axes})
    else:
        sizes = ctx.make_node("Cast", [reader.input[1]], attr={"to": TensorProto.INT64}).output[0]
        laid = ctx.make_node("Reshape", [part, sizes]).output[0]
    ctx.set_shape(laid, ctx.get_shape(reader.output[0]))
    ctx.set_dtype(laid, TensorProto.FLOAT)
    return str(laid)


def _become(ctx: Any, node: Any, op: str, inputs: Sequence[str]) -> None:
    """Change a node in place: tf2onnx still has it on its list, and must not convert it again."""
    for attribute in list(node.attr):
        del node.attr[attribute]
    node.type, node.skip_conversion = op, True
    ctx.replace_inputs(node, list(inputs))
    ctx.set_dtype(node.output[0], TensorProto.FLOAT)
