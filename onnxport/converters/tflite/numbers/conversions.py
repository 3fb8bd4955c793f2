"""Conversions of element types, in steps where TFLite's CAST lacks one or rounds it differently.

float64 tensors exist at the boundary, between two casts, and where data only move; arithmetic is float32. A float64
tensor whose values float32 holds has a float32 twin, so that a chain of float64 ops has no casts in between. A float16
tensor that was made of a float32 one has this as its twin. ONNX Runtime's CPU computes float16 operators in float32
between Casts, of which it drops those that meet: results are not rounded from one to the next, and do not overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.kernels import NoKernel
from onnxport.core.arrays import Array


class TensorBuilder(Protocol):
    """The part of the builder (tensors.py) that conversions use."""

    twins: dict[ir.Value, ir.Value]
    doubles: dict[ir.Value, Array]

    def dtype_of(self, tensor: ir.Value) -> np.dtype[Any]: ...

    def shape_of(self, tensor: ir.Value) -> tuple[int | None, ...]: ...

    def op(
        self, name: str, operands: Sequence[ir.Value], shape: Any, dtype: Any = None, /, **attributes: object
    ) -> ir.Value: ...

    def cast(self, tensor: ir.Value, dtype: Any) -> ir.Value: ...

    def bitcast(self, tensor: ir.Value, dtype: Any) -> ir.Value: ...

    def constant(self, array: Any, dtype: Any = None) -> ir.Value: ...


_FLOATS = frozenset("bfloat16 float16 float32 float64".split())
_HALVES = frozenset("bfloat16 float16".split())
# Integers that float32 holds, all of them.
_NARROW = frozenset("bool int8 int16 uint8 uint16".split())
_SIGN_BIT = np.iinfo(np.int64).min


def cast(tfl: TensorBuilder, tensor: ir.Value, dtype: np.dtype[Any]) -> ir.Value:
    """Convert a tensor's elements to `dtype` as ONNX Runtime does.

    Raises:
        NoKernel: a float64 constant that float32, in which TFLite computes, does not hold.
    """
    source, target = tfl.dtype_of(tensor).name, dtype.name
    if source == target:
        return tensor
    if tensor in tfl.twins:
        return tfl.cast(tfl.twins[tensor], dtype)
    if tensor in tfl.doubles and target == "float32":
        return tfl.constant(narrow(tfl.doubles[tensor]))
    if source == "uint64":
        return _from_uint64(tfl, tensor, dtype)
    if target == "uint64":
        return _to_uint64(tfl, tensor)
    between = _intermediate_type(source, target)
    if between is not None:
        return tfl.cast(tfl.cast(tensor, np.dtype(between)), dtype)
    result = tfl.op("cast", [tensor], tfl.shape_of(tensor), dtype)
    if source == "float32" and target in ("float64", "float16"):
        tfl.twins[result] = tensor
    return result


def _to_uint64(tfl: TensorBuilder, tensor: ir.Value) -> ir.Value:
    """Convert integers modulo 2^64, and floats in two ranges: int64 ends at 2^63."""
    if tfl.dtype_of(tensor).name not in _FLOATS:
        return tfl.bitcast(tfl.cast(tensor, np.int64), np.uint64)
    x, shape = tfl.cast(tensor, np.float32), tfl.shape_of(tensor)
    limit = tfl.constant(2.0**63, np.float32)
    large = tfl.op("greater_equal", [x, limit], shape, bool)
    rest = tfl.op("sub", [x, limit], shape)  # exact where it is used
    above = tfl.op("add", [tfl.cast(rest, np.int64), tfl.constant(_SIGN_BIT, np.int64)], shape)
    bits = tfl.op("select_v2", [large, above, tfl.cast(x, np.int64)], shape)
    return tfl.bitcast(bits, np.uint64)


def _from_uint64(tfl: TensorBuilder, tensor: ir.Value, dtype: np.dtype[Any]) -> ir.Value:
    bits = tfl.bitcast(tensor, np.int64)
    if dtype.name not in _FLOATS:
        return tfl.cast(bits, dtype)
    if dtype == np.float64:
        raise NoKernel("TFLite converts no uint64 to float64")
    return tfl.cast(_unsigned_float(tfl, bits), dtype)


def _unsigned_float(tfl: TensorBuilder, bits: ir.Value) -> ir.Value:
    """Return the unsigned numbers of the bits, rounded to float32; from 2^63 on its neighbours are 2^40 apart."""
    shape = tfl.shape_of(bits)

    def op(name: str, a: ir.Value, b: ir.Value | int) -> ir.Value:
        compares = name in ("less", "equal", "not_equal", "logical_or", "logical_and")
        operands = [a, tfl.constant(b, np.int64) if isinstance(b, int) else b]
        return tfl.op(name, operands, shape, bool if compares else None)

    above = op("sub", bits, _SIGN_BIT)  # the excess over 2^63
    rest = op("floor_mod", above, 2**40)
    steps = op("sub", above, rest)
    odd = op("not_equal", op("floor_mod", steps, 2**41), 0)
    tie = op("logical_and", op("equal", rest, 2**39), odd)
    up = op("logical_or", op("less", tfl.constant(2**39, np.int64), rest), tie)
    choices = [tfl.constant(2.0**40, np.float32), tfl.constant(0, np.float32)]
    added = tfl.op("select_v2", [up, *choices], shape, np.float32)
    large = op("add", op("add", tfl.cast(steps, np.float32), added), tfl.constant(2.0**63, np.float32))
    return tfl.op("select_v2", [op("less", bits, 0), large, tfl.cast(bits, np.float32)], shape)


def _intermediate_type(source: str, target: str) -> str | None:
    """Return the type through which a conversion has to go."""
    if source in _FLOATS and target in ("int8", "int16", "uint8", "uint16"):
        return "int32"  # ONNX Runtime wraps, TFLite would clamp
    if source in _FLOATS and target == "uint32":
        return "int64"
    halves = {source, target} & _HALVES
    if halves and "float32" not in (source, target) and target != "int32":
        return "float32"
    if source in _NARROW and target == "float64":
        return "float32"
    return None


def narrow(array: Array) -> Array:
    """Return a float64 constant in float32.

    Raises:
        NoKernel: a value beyond float32's range, or an integer that it would round, on which the model may count.
    """
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    lost = np.isfinite(array) & ~np.isfinite(narrow) | (array != 0) & (narrow == 0)
    whole = np.isfinite(array) & (np.abs(array) < 2.0**53) & (array == np.rint(array))
    lost |= whole & (narrow.astype(np.float64) != array)
    if lost.any():
        example = float(array[lost].flat[0])
        raise NoKernel(
            f"needs float64: float32, in which TFLite computes, does not hold its constant {example!r}"
        )
    return narrow
