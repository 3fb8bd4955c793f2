"""Cast."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilType, wrap
from onnxport.converters.coreml.numbers import integer_widths
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


@lower("Cast")
def cast(node: NodeView[Value], mil: MilBuilder) -> None:
    """Element type conversion (ONNX Cast-25)."""
    x, target = node.x, node.output_dtype()
    node.attribute("to")
    node.ignore("round_mode", "saturate")  # of float8 only, which is refused
    if x.dtype.kind in "OUSc" or target.kind in "OUSc":
        node.unsupported("to or from strings or complex numbers, which Core ML does not hold")
    if target.kind == "V" or target.name in ("int4", "uint4", "int2", "uint2"):
        node.unsupported(f"to {target.name}, which MIL's tensors do not hold")
    if x.dtype == target:
        node.emit(x)
    elif x.constant is not None:
        node.emit(mil.constant(x.constant.astype(target)))
    elif target.kind == "b":
        node.emit(Term(mil, x).differs(0).value)
    elif target.kind in "iu":
        node.emit(_cast_to_integer(mil, x, target))
    elif target == np.float16 and mil.at_least("iOS16"):
        node.emit(_cast_to_float(mil, x, "fp16"))
    else:
        node.emit(_cast_to_float(mil, x, mil.compute))


def _cast_to_float(mil: MilBuilder, x: Value, type_: MilType) -> Value:
    if type_ in x.copies:
        return wrap(x.copies[type_])
    return mil.cast(x=wrap(x.var), dtype=type_)


def _cast_to_integer(mil: MilBuilder, x: Value, target: np.dtype[Any]) -> Value:
    if x.is_integer:
        fits = np.can_cast(x.dtype, target)
        return x if fits else integer_widths.wrap(Term(mil, x), target).value
    # From the type that holds it: half precision on the way would round or overflow.
    mil.compute = "fp16" if set(x.copies) == {"fp16"} else "fp32"
    return integer_widths.wrap(Term(mil, x).call("cast", dtype="int32"), target).value
