"""TensorFlow operators that tf2onnx lacks: a handler replaces the node in tf2onnx's graph `ctx`, name and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxport.exporters.tensorflow.spectra import rfft

Handler = Callable[..., None]


def erfc(ctx: Any, node: Any, name: str, args: Any) -> None:
    """1 - erf(x); Keras writes Gelu with it."""
    dtype, shape = ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
    one = ctx.make_const(f"{name}/one", np.ones((), _numpy(dtype))).output[0]
    ctx.remove_node(node.name)
    erf = ctx.make_node("Erf", node.input, shapes=[shape], dtypes=[dtype], name=f"{name}/Erf")
    ctx.make_node("Sub", [one, erf.output[0]], outputs=node.output, shapes=[shape], dtypes=[dtype], name=name)


def gelu(ctx: Any, node: Any, name: str, args: Any) -> None:
    """x / 2 * (1 + erf(x / sqrt 2)), or its approximation by tanh; TFLite's operator, newer than tf2onnx's schema."""
    dtype, shape = ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
    (x,), outputs = list(node.input), list(node.output)
    approximate = "approximate" in node.attr and bool(node.get_attr_int("approximate"))
    ctx.remove_node(node.name)

    def constant(value: float) -> str:
        return str(ctx.make_const(f"{name}/{value:.4f}", np.array(value, _numpy(dtype))).output[0])

    def made(op: str, *inputs: str, **options: Any) -> str:
        part = ctx.make_node(op, list(inputs), shapes=[shape], dtypes=[dtype], **options)
        return str(part.output[0])

    if approximate:
        cubed = made("Mul", made("Mul", made("Mul", x, x), x), constant(0.044715))
        bent = made("Tanh", made("Mul", made("Add", x, cubed), constant(float(np.sqrt(2 / np.pi)))))
    else:
        bent = made("Erf", made("Mul", x, constant(float(np.sqrt(0.5)))))
    half = made("Mul", x, constant(0.5))
    made("Mul", half, made("Add", bent, constant(1.0)), outputs=outputs, name=name)


def _numpy(element: int) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(element)


HANDLERS: Mapping[str, Handler] = {"Erfc": erfc, "TFL_GELU": gelu, "RFFT": rfft, "RFFT2D": rfft}
