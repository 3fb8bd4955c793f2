"""Labels and score transforms shared by classifiers and regressors of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite

_NEARLY_ZERO = np.float32(1e-7)


def labels(node: Rewrite) -> Array:
    """Return the class labels, [classes] of int64 or texts; positions in place of texts that nothing reads."""
    strings = [node.attribute(name) for name in ("classlabels_strings", "classlabels_strings_int64s")]
    names = next((each for each in strings if each), ())
    if names and node.wants_output(0):
        return np.asarray([decode(each) for each in names])
    numbers = node.attribute("classlabels_int64s", node.attribute("classlabels_ints", ()))
    return np.arange(len(names)) if names else np.asarray(numbers, np.int64)


def map_labels(node: Rewrite, index: ir.Value, labels: Array) -> ir.Value:
    """Map class numbers to labels."""
    if np.array_equal(labels, np.arange(len(labels))):
        return index
    return node.op("Gather", labels, index)


def _softmax_zero(node: Rewrite, x: ir.Value) -> ir.Value:
    """Compute Softmax over the nonzero scores; zeros are divided by the same sum."""
    largest = node.op("ReduceMax", x, np.array([1]))
    counts = node.op("Greater", node.op("Abs", x), _NEARLY_ZERO)
    zeros = node.op("Mul", x, node.op("Exp", node.op("Neg", largest)))
    exponentials = node.op("Exp", node.op("Sub", x, largest))
    total = node.op("ReduceSum", node.op("Where", counts, exponentials, np.float32(0)), np.array([1]))
    return node.op("Div", node.op("Where", counts, exponentials, zeros), total)


def _probit(node: Rewrite, x: ir.Value) -> ir.Value:
    """Compute sqrt(2) * erfinv(2x - 1) by ONNX Runtime's approximation (S. Winitzki, a = 0.147)."""
    centred = node.op("Sub", node.op("Mul", x, np.float32(2)), np.float32(1))
    product = node.op("Mul", node.op("Sub", np.float32(1), centred), node.op("Add", np.float32(1), centred))
    log = node.op("Log", product)
    v = node.op("Add", node.op("Mul", log, np.float32(0.5)), np.float32(2 / (3.14159 * 0.147)))
    root = node.op("Sqrt", node.op("Sub", node.op("Mul", v, v), node.op("Mul", log, np.float32(1 / 0.147))))
    size = node.op("Sqrt", node.op("Sub", root, v))
    sign = node.op("Where", node.op("Less", centred, np.float32(0)), np.float32(-1), np.float32(1))
    return node.op("Mul", node.op("Mul", sign, size), np.float32(1.41421356))


# In the order of their numbers in TreeEnsemble-5.
_TRANSFORMS: dict[str, Callable[[Rewrite, ir.Value], ir.Value]] = {
    "NONE": lambda node, x: x,
    "SOFTMAX": lambda node, x: node.op("Softmax", x, axis=1),
    "LOGISTIC": lambda node, x: node.op("Sigmoid", x),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


TRANSFORMS = tuple(_TRANSFORMS)


def transform(node: Rewrite, total: ir.Value, transform: str) -> ir.Value:
    """Apply `post_transform` to the scores of two or more classes or targets."""
    return _TRANSFORMS[transform](node, total)


def text(node: Rewrite, name: str, default: str) -> str:
    return decode(node.attribute(name, default))


def decode(text: str | bytes) -> str:
    """Return a text of an attribute."""
    return text.decode() if isinstance(text, bytes) else text


def post_transform(node: Rewrite) -> str:
    return text(node, "post_transform", "NONE")


def floats(
    node: Rewrite, name: str, default: Sequence[float] = (), dtype: type[np.floating[Any]] = np.float32
) -> Array:
    """Return a list of floats, which some operators may hold as a tensor of float64."""
    tensor = node.attribute(f"{name}_as_tensor")
    return np.asarray(node.attribute(name, default) if tensor is None else tensor.reshape(-1), dtype)


def matrix(node: Rewrite, index: int) -> ir.Value:
    """Return input `index` in float32 with a row per sample; a single sample may be a vector."""
    rank, x = len(node.shape(node.input(index))), node.cast(node.input(index), np.float32)
    return node.op("Unsqueeze", x, np.array([0])) if rank == 1 else x
