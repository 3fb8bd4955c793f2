"""Inputs and results of MIL blocks: own variables, of types that do not depend on known numbers."""

from __future__ import annotations

from typing import Any

from onnxport.converters.coreml.builder import MilBuilder, MilType, wrap
from onnxport.converters.coreml.library import Var, get_new_symbol, mb, types
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


def emit_variable(mil: MilBuilder, op: str, **parameters: Any) -> Var:
    """Emit `op` and return its variable, whose number MIL must not know."""
    value: Value = mil.emit(op, **parameters)
    (var,) = value.copies.values()
    if var.op is not None and var.op.op_type == "const":  # the builder folds constants
        var = mb.identity(x=var, name=mil.inner_name("identity"))
    var._sym_val = None
    return var


def block_result(mil: MilBuilder, value: Value, type_: MilType | None = None) -> Var:
    """Return `value` as a block's result: an own variable, whose number MIL must not know.

    Constants and values from around the block get a copy. MIL compares what it knows of the numbers at both ends of a
    loop, and would take the first step's for those of all.
    """
    return emit_variable(mil, "identity", x=mil.var(value, type_))


def with_open_sizes(mil: MilBuilder, value: Value, switch: Var) -> Value:
    """Return `value` with sizes that MIL knows at run time only: branches may differ in them, not in types.

    Args:
        switch: any run-time bool, so that the sizes are computed.
    """
    nothing = emit_variable(mil, "mul", x=emit_variable(mil, "cast", x=switch, dtype="int32"), y=0)
    sizes = emit_variable(mil, "add", x=mil.shape(x=value), y=nothing)
    made: Value = mil.reshape(x=value, shape=sizes)
    made.dtype, made.is_natural = value.dtype, value.is_natural
    return made


def declare_open(var: Var, shape: tuple[int | None, ...]) -> None:
    """Declare a block's input open where `shape` is, and its number unknown."""
    var._sym_val = None
    if None in shape:
        dims = [get_new_symbol() if ours is None else dim for ours, dim in zip(shape, var.shape, strict=True)]
        var._sym_type = types.tensor(var.dtype, dims)


def check_carried(node: NodeView[Value], value: Value, name: str | None) -> None:
    """Refuse a result that no MIL block returns."""
    if 0 in value.shape:
        node.unsupported(f"gives back {name!r} without elements, which Core ML does not hold")


def block_input(var: Var, dtype: Any) -> Value:
    """Return a block's input as a Value of ONNX's `dtype`."""
    value = wrap(var)
    value.dtype = dtype
    return value
