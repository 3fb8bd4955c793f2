"""Conversions of element types, in steps where TFLite's CAST lacks one or rounds it differently.

float64 tensors exist at the boundary, between two casts, and where data only move; arithmetic is float32. A float64
tensor whose values float32 holds has a float32 twin, so that a chain of float64 ops has no casts in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.kernels import NoKernel
from onnxport.converters.tflite.layout import Shape
from onnxport.core.arrays import Array

_FLOATS = frozenset("bfloat16 float16 float32 float64".split())
_HALVES = frozenset("bfloat16 float16".split())
# Integers that float32 holds, all of them.
_NARROW = frozenset("bool int8 int16 uint8 uint16".split())
_SIGN_BIT = np.iinfo(np.int64).min


class Conversions(ABC):
    """The conversions of a builder of ops.

    Attributes:
        twins: float64 tensors -> the float32 tensors with the same values.
        doubles: float64 constants.
    """

    twins: dict[ir.Value, ir.Value]
    doubles: dict[ir.Value, Array]

    @abstractmethod
    def op(
        self,
        name: str,
        operands: Sequence[ir.Value],
        shape: Sequence[int | None],
        dtype: np.dtype[Any] | type | None = None,
        /,
        **attributes: object,
    ) -> ir.Value: ...

    @abstractmethod
    def constant(
        self, array: Array | np.generic | float | Sequence[int], dtype: np.dtype[Any] | type | None = None
    ) -> ir.Value: ...

    @abstractmethod
    def dtype_of(self, tensor: ir.Value) -> np.dtype[Any]: ...

    @abstractmethod
    def shape_of(self, tensor: ir.Value) -> Shape: ...

    def cast(self, tensor: ir.Value, dtype: np.dtype[Any] | type) -> ir.Value:
        """Convert a tensor's elements to `dtype` as ONNX Runtime does.

        Raises:
            NoKernel: a float64 constant that float32, in which TFLite computes, does not hold.
        """
        dtype = np.dtype(dtype)
        if self.dtype_of(tensor) == dtype:
            return tensor
        source, target = self.dtype_of(tensor).name, dtype.name
        if tensor in self.twins:
            return self.cast(self.twins[tensor], dtype)
        if tensor in self.doubles and target == "float32":
            return self.constant(narrow(self.doubles[tensor]))
        if source == "uint64":
            return self._from_uint64(tensor, dtype)
        if target == "uint64":
            return self._to_uint64(tensor)
        between = _intermediate_type(source, target)
        if between is not None:
            return self.cast(self.cast(tensor, np.dtype(between)), dtype)
        result = self.op("cast", [tensor], self.shape_of(tensor), dtype)
        if (source, target) == ("float32", "float64"):
            self.twins[result] = tensor
        return result

    def bitcast(self, tensor: ir.Value, dtype: np.dtype[Any] | type) -> ir.Value:
        """Read a tensor's elements as another type of the same width."""
        if self.dtype_of(tensor) == np.dtype(dtype):
            return tensor
        return self.op("bitcast", [tensor], self.shape_of(tensor), dtype)

    def _to_uint64(self, tensor: ir.Value) -> ir.Value:
        """Convert integers modulo 2^64, and floats in two ranges: int64 ends at 2^63."""
        if self.dtype_of(tensor).name not in _FLOATS:
            return self.bitcast(self.cast(tensor, np.int64), np.uint64)
        x, shape = self.cast(tensor, np.float32), self.shape_of(tensor)
        limit = self.constant(2.0**63, np.float32)
        large = self.op("greater_equal", [x, limit], shape, bool)
        rest = self.op("sub", [x, limit], shape)  # exact where it is used
        above = self.op("add", [self.cast(rest, np.int64), self.constant(_SIGN_BIT, np.int64)], shape)
        bits = self.op("select_v2", [large, above, self.cast(x, np.int64)], shape)
        return self.bitcast(bits, np.uint64)

    def _from_uint64(self, tensor: ir.Value, dtype: np.dtype[Any]) -> ir.Value:
        bits = self.bitcast(tensor, np.int64)
        if dtype.name not in _FLOATS:
            return self.cast(bits, dtype)
        if dtype == np.float64:
            raise NoKernel("TFLite converts no uint64 to float64")
        return self.cast(self._unsigned_float(bits), dtype)

    def _unsigned_float(self, bits: ir.Value) -> ir.Value:
        """Return the unsigned numbers of the bits, rounded to float32; from 2^63 on its neighbours are 2^40 apart."""
        shape = self.shape_of(bits)

        def op(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
            compares = name in ("less", "equal", "not_equal", "logical_or", "logical_and")
            return self.op(name, [a, b], shape, bool if compares else None)

        def whole(number: int) -> ir.Value:
            return self.constant(number, np.int64)

        above = op("sub", bits, whole(_SIGN_BIT))  # the excess over 2^63
        rest = op("floor_mod", above, whole(2**40))
        steps = op("sub", above, rest)
        odd = op("not_equal", op("floor_mod", steps, whole(2**41)), whole(0))
        tie = op("logical_and", op("equal", rest, whole(2**39)), odd)
        up = op("logical_or", op("less", whole(2**39), rest), tie)
        added = self.op(
            "select_v2",
            [up, self.constant(2.0**40, np.float32), self.constant(0, np.float32)],
            shape,
            np.float32,
        )
        large = op("add", op("add", self.cast(steps, np.float32), added), self.constant(2.0**63, np.float32))
        is_large = op("less", bits, whole(0))
        return self.op("select_v2", [is_large, large, self.cast(bits, np.float32)], shape)


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
