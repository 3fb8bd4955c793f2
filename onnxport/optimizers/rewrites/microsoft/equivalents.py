"""Operators of com.microsoft that ONNX has adopted, or has in another layout, and activations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


@rewrites("com.microsoft::GatherND", "com.microsoft::Pad", "com.microsoft::Trilu")
def as_onnx(node: Rewrite) -> None:
    """Rewrite as the operator of the same name in ONNX's own domain."""
    inputs = node.inputs()
    node.emit(node.op(node.node.op_type, *inputs, **node.attributes(*node.node.attributes)))


@rewrites("com.microsoft::Range")
def range_(node: Rewrite) -> None:
    """Rewrite Range with an optional step."""
    start, end, step = node.input(0), node.input(1), node.optional(2)
    node.emit(node.op("Range", start, end, np.asarray(1, node.dtype(start)) if step is None else step))


@rewrites("com.microsoft::ExpandDims")
def expand_dims(node: Rewrite) -> None:
    """Rewrite as Unsqueeze of one axis."""
    axis = node.op("Reshape", node.op("Cast", node.input(1), to=ir.DataType.INT64), np.array([1]))
    node.emit(node.op("Unsqueeze", node.input(0), axis))


@rewrites("com.microsoft::GridSample")
def grid_sample(node: Rewrite) -> None:
    """Rewrite as GridSample-20, which names the modes differently."""
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    attributes = {
        "mode": modes[node.attribute("mode", "bilinear")],
        "padding_mode": node.attribute("padding_mode", "zeros"),
        "align_corners": node.attribute("align_corners", 0),
    }
    node.emit(node.op("GridSample", node.input(0), node.input(1), **attributes))


@rewrites("com.microsoft::NhwcMaxPool")
def nhwc_max_pool(node: Rewrite) -> None:
    """Rewrite MaxPool with channels last."""
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    rank = len(node.shape(node.input(0)))
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    x = node.op("Transpose", node.input(0), perm=first)
    pooled = node.op("MaxPool", x, **node.attributes(*names))
    node.emit(node.op("Transpose", pooled, perm=last))


@rewrites("com.microsoft::CDist")
def cdist(node: Rewrite) -> None:
    """Compute the distance of each row of a from each row of b."""
    metric = node.attribute("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        node.unsupported(f"the metric {metric!r}; only euclidean ones are supported")
    a, b = (node.op("Unsqueeze", node.input(i), np.array([1 - i])) for i in (0, 1))
    difference = node.op("Sub", a, b)
    squares = node.op("ReduceSum", node.op("Mul", difference, difference), np.array([2]), keepdims=0)
    node.emit(squares if metric == "sqeuclidean" else node.op("Sqrt", squares))


@rewrites("com.microsoft::BiasGelu", "com.microsoft::FastGelu", "com.microsoft::Gelu")
def gelu(node: Rewrite) -> None:
    """Compute Gelu of x plus an optional bias; FastGelu by tanh."""
    x = node.op("Add", *node.inputs()) if node.has_input(1) else node.input(0)
    node.emit(node.op("Gelu", x, approximate="tanh" if node.node.op_type == "FastGelu" else "none"))


@rewrites("com.microsoft::QuickGelu")
def quick_gelu(node: Rewrite) -> None:
    """Compute x * sigmoid(alpha * x)."""
    x = node.input(0)
    alpha = np.asarray(node.attribute("alpha", 1.702), node.dtype(x))
    scaled = x if alpha == 1 else node.op("Mul", x, alpha)
    node.emit(node.op("Mul", x, node.op("Sigmoid", scaled)))
