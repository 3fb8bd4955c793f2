"""What a Loop's body says of itself, whatever the target."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as onnx

from onnxport.converters.lowering import NodeView
from onnxport.formats.model import dims_of


def shape_in_body(node: NodeView[Any], value: onnx.Value) -> tuple[int | None, ...]:
    """The shape of an input or output of a Loop's body, None where a dimension is open."""
    if value.shape is None:
        node.unsupported(
            f"the number of dimensions of {value.name!r} in its body is not known, or changes from step to step"
        )
    return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))


def dtype_in_body(node: NodeView[Any], value: onnx.Value, target: str) -> np.dtype[Any]:
    """Its element type; `target` is the format's name, for refusals."""
    if value.dtype is None or value.dtype == onnx.DataType.STRING:
        node.unsupported(f"{value.name!r} in its body has no type that {target} carries")
    return np.dtype(value.dtype.numpy())


def unchanged(value: onnx.Value) -> onnx.Value:
    """The value that it is a copy of, or itself."""
    while (producer := value.producer()) is not None and producer.op_type == "Identity":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
    return value
