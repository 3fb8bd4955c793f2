"""TensorFlow operators that tf2onnx has no form for, written with those of ONNX: TensorFlow op -> handler.

A handler replaces the node in tf2onnx's graph `ctx`, under the name and with the outputs of the node that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Handler = Callable[..., None]


def erfc(ctx: Any, node: Any, name: str, args: Any) -> None:
    """1 - erf(x); Keras writes Gelu with it."""
    dtype, shape = ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
    one = ctx.make_const(f"{name}/one", np.ones((), _numpy(dtype))).output[0]
    ctx.remove_node(node.name)
    erf = ctx.make_node("Erf", node.input, shapes=[shape], dtypes=[dtype], name=f"{name}/Erf")
    ctx.make_node("Sub", [one, erf.output[0]], outputs=node.output, shapes=[shape], dtypes=[dtype], name=name)


def _numpy(element: int) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(element)


HANDLERS: Mapping[str, Handler] = {"Erfc": erfc}
