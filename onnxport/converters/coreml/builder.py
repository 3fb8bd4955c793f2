"""A thin layer over coremltools' MIL builder: it chooses types, rounds constants and has one exception.

A lowering writes `mil.conv(x=node.x, weight=node.input(1), strides=[1, 1])`: every MIL operator is a method that takes
and gives `Value`s. Python floats, float arrays and float Values become the element type that the node computes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from onnxport.converters.coreml.library import Var, mb, types
from onnxport.converters.coreml.names import INNER
from onnxport.converters.coreml.quantized import emit_dequantize
from onnxport.converters.coreml.values import LARGEST_RANK, Value
from onnxport.converters.driver import Scope
from onnxport.converters.lowering import NodeView, UnsupportedOp
from onnxport.core.arrays import Array
from onnxport.optimizers.float16.constants import to_half

MilNode: TypeAlias = NodeView[Value]
Compute = Literal["fp16", "fp32"]
MilType = Literal["fp16", "fp32", "int32", "bool", "int8", "uint8", "int16", "uint16", "int4", "uint4"]

_INT32 = np.iinfo(np.int32)
# MIL's element type -> the ONNX one of a result whose node declares none.
_FAMILY = {"fp16": np.float32, "fp32": np.float32, "bool": np.bool_}


class NoMil(Exception):
    """A refusal by MIL or its builder (operand types, ranks or values), in words for the user."""


class MilBuilder:
    """Emits MIL operators into the function or block that is open.

    Attributes:
        target: coremltools' AvailableTarget, which decides the version of every operator.
        ios: the target's number, 17 for iOS17.
        compute: the element type in which the current node computes its floats.
        scope: the graph being lowered.
        notes: sentences for the user.
    """

    scope: Scope[Value]

    def __init__(self, target: Any, compute: Compute = "fp32") -> None:
        self.target, self.compute = target, compute
        self.ios = int(target.name.removeprefix("iOS"))
        self.notes: list[str] = []
        self._count = 0

    def at_least(self, target: str) -> bool:
        """Return whether the target is `target` ("iOS17") or newer."""
        return self.ios >= int(target.removeprefix("iOS"))

    def __getattr__(self, op: str) -> Callable[..., Value]:
        """Return the MIL operator `op`, which takes its parameters by MIL's own names.

        Raises:
            NoMil: MIL has no such form.
        """
        if op.startswith("_"):
            raise AttributeError(op)
        return partial(self.emit, op)

    def emit(self, op: str, **parameters: Any) -> Value:
        """Emit `mil.<op>(...)`; see __getattr__."""
        (value,) = self.emit_all(op, **parameters)
        return value

    def emit_all(self, op: str, **parameters: Any) -> list[Value]:
        """Emit an operator that may have several results (split, topk, lstm ...)."""
        if not hasattr(mb, op):
            raise NoMil(f"needs {op!r}, which MIL does not have")
        given = {name: self.argument(each) for name, each in parameters.items() if each is not None}
        try:
            result = getattr(mb, op)(name=self.inner_name(op), **given)
        except (NoMil, UnsupportedOp):
            raise  # of a nested block
        except Exception as error:  # the builder's checks raise ValueError, TypeError, KeyError ...
            message = " ".join(str(error).split())[:300] or type(error).__name__
            raise NoMil(f"MIL's {op} refuses it: {message}") from error
        results = result if isinstance(result, list | tuple) else [result]
        values = [wrap(_as_typed_constant(var)) for var in results]
        highest = max(value.rank for value in values)
        if highest > LARGEST_RANK:
            raise NoMil(f"makes a tensor of {highest} dimensions, and Core ML's have {LARGEST_RANK} at most")
        return values

    def select(self, cond: Any, a: Any, b: Any) -> Value:
        """Return `a` where `cond` holds, `b` elsewhere, the three broadcast.

        MIL documents that, but coremltools declares a result of the shape of a and b alone: where the condition has
        more elements, something of its shape that changes nothing is added to b.
        """
        *choices, shape = (
            tuple(self.var(each).shape) if isinstance(each, Value) else np.shape(each)
            for each in (a, b, cond)
        )
        if not _covers(choices, shape):
            b = self._broadcast_like(b, cond)
        return self.emit("select", cond=cond, a=a, b=b)

    def _broadcast_like(self, given: Any, like: Value) -> Value:
        """Broadcast `given` with the condition `like`."""
        flags = self.cast(x=like, dtype="int32")
        if isinstance(given, Value) and given.dtype.kind == "b":
            return self.logical_or(x=given, y=self.less(x=flags, y=0))
        if isinstance(given, float) or (isinstance(given, Value) and given.is_float):
            # Adding -0.0 keeps the sign of a zero; coremltools drops an added zero, whatever its sign.
            zeros = self.mul(x=self.cast(x=flags, dtype=self.compute), y=0.0 if _is_zero(given) else -0.0)
        else:
            zeros = self.mul(x=flags, y=0)
        return self.add(x=zeros, y=given)

    def inner_name(self, op: str) -> str:
        self._count += 1
        return f"{op}{INNER}{self._count}"

    # ---- operands

    def argument(self, given: Any) -> Any:
        """Convert a parameter to the form that coremltools' builder takes."""
        if isinstance(given, Value):
            return self.var(given)
        if callable(given) or isinstance(given, Var | str | bool | np.generic):
            return given
        if isinstance(given, float):
            return self._round(np.asarray(given, np.float32))[()]
        if isinstance(given, int):
            return np.int32(given)
        if isinstance(given, list | tuple):
            if any(isinstance(each, Value | Var) for each in given):
                return [self.argument(each) for each in given]
            kinds = {type(each) for each in given}
            given = np.asarray(
                given, np.bool_ if kinds == {bool} else np.float32 if float in kinds else np.int32
            )
        if not isinstance(given, np.ndarray):
            raise TypeError(f"no MIL parameter: {given!r}")
        if given.dtype.kind == "f":
            return self._round(given.astype(np.float32))
        return _integers(given) if given.dtype.kind in "iu" else given

    def var(self, value: Value, type_: MilType | None = None) -> Var:
        """Return the MIL variable of `value`, cast if it is held in another type.

        Args:
            type_: the MIL type wanted; that in which the node computes unless given.
        """
        type_ = type_ or self.mil_type(value.dtype)
        found = value.copies.get(type_)
        if found is not None:
            return found
        if value.rank > LARGEST_RANK:
            raise NoMil(
                f"reads a tensor of {value.rank} dimensions, and Core ML's have {LARGEST_RANK} at most"
            )
        if 0 in value.shape:
            raise NoMil("reads an empty tensor, and Core ML has no empty tensors")
        if value.constant is not None:
            made = self._constant(value, type_)
        else:
            made = mb.cast(x=value.var, dtype=type_, name=self.inner_name("cast"))
        value.copies[type_] = made
        return made

    def mil_type(self, dtype: np.dtype[Any]) -> MilType:
        """Return the MIL type of a value of ONNX's `dtype` in the current node."""
        if dtype.kind == "b":
            return "bool"
        if dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2"):
            return "int32"
        return self.compute

    def constant(self, array: Array, dtype: np.dtype[Any] | None = None) -> Value:
        """Return a Value that is known now."""
        return Value(array.shape, dtype or array.dtype, constant=array)

    def raw(self, array: Array) -> Var:
        """Return a constant of the element type that it has."""
        return mb.const(val=array if array.ndim else array[()], name=self.inner_name("const"))

    def _constant(self, value: Value, type_: MilType) -> Var:
        """Return a constant; one that the model has quantized stays so in the file where MIL can."""
        assert value.constant is not None
        if value.quantized is not None and type_ in ("fp16", "fp32"):
            made = emit_dequantize(value.quantized, type_, self.ios, self.inner_name("dequantized"))
            if made is not None:
                return made
        if value.constant.dtype.kind in "OSU":
            raise NoMil("reads texts, which Core ML's arrays do not hold")
        if type_ == "fp16":
            return self.raw(to_half(value.constant.astype(np.float32, copy=False)))
        if type_ in ("fp32", "bool"):
            return self.raw(value.constant.astype(np.float32 if type_ == "fp32" else np.bool_))
        integers = _integers(value.constant)
        return self.raw(integers if type_ == "int32" else integers.astype(type_))

    def _round(self, array: Array) -> Array:
        return to_half(array) if self.compute == "fp16" else array


def _covers(shapes: Sequence[tuple[Any, ...]], other: tuple[Any, ...]) -> bool:
    """Return whether `shapes`, broadcast together, surely have all the axes and sizes that `other` would bring."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    brought = (1,) * (rank - len(other)) + tuple(other)
    return len(other) <= rank and all(
        size == 1 or any(each[axis] == size for each in aligned) for axis, size in enumerate(brought)
    )


def _is_zero(given: Any) -> bool:
    """Return whether a choice is 0.0 everywhere, and not -0.0."""
    array = given.constant if isinstance(given, Value) else np.asarray(given)
    return array is not None and not (array.any() or np.signbit(array).any())


_FLOATS: Mapping[Any, type[np.floating[Any]]] = {types.fp16: np.float16, types.fp32: np.float32}


def _as_typed_constant(var: Var) -> Var:
    """Return a float result that is known now as a constant of its own type where coremltools makes another of it.

    Its const_elimination makes float32 of a float16 result without axes, and integers of a float that NumPy computed
    as one (floor, from 2.1 on): the program is invalid then.
    """
    if _is_list_or_state(var) or var.dtype not in _FLOATS:
        return var
    if var.op is None or var.op.op_type == "const" or var.val is None:
        return var
    if np.asarray(var.val).dtype.kind == "f" and (var.rank or var.dtype != types.fp16):
        return var
    value = np.asarray(var.val, _FLOATS[var.dtype])
    return mb.const(val=value if value.ndim else value[()], name=f"{var.name}_known")


def _is_list_or_state(var: Var) -> bool:
    return bool(types.is_list(var.sym_type) or types.is_state(var.sym_type))


def wrap(var: Var, dtype: np.dtype[Any] | None = None) -> Value:
    """Return a Value of an operator's result, of ONNX's `dtype` if given; binding it to an ONNX value sets its own."""
    if _is_list_or_state(var):
        return Value((), np.dtype(object), copies={"list": var})
    name = types.builtin_to_string(var.dtype)
    shape = tuple(int(dim) if isinstance(dim, int | np.integer) else None for dim in var.shape)
    return Value(shape, dtype or np.dtype(_FAMILY.get(name, np.int32)), copies={name: var})


def _integers(array: Array) -> Array:
    """Convert to int32, MIL's integers; NoMil for a number beyond it."""
    if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        beyond = array.min() if array.min() < _INT32.min else array.max()
        raise NoMil(f"has the constant {beyond}, and Core ML's integers are of 32 bits")
    return np.asarray(array.astype(np.int32))
