"""Preprocessors of ai.onnx.ml, which scikit-learn applies to features before a model."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml.scores import decode, floats, text
from onnxport.optimizers.rewrites.registry import Rewrite, refuse, rewrites

_STRINGS = "which no tensor of the target holds; do this step outside the model"


for _op, _why in (
    ("CategoryMapper", f"maps strings, {_STRINGS}"),
    ("DictVectorizer", "takes a dictionary, which no tensor holds; give the features as a tensor"),
    ("ZipMap", "gives a list of dictionaries; export the model with zipmap=False, or cut the node off"),
    ("CastMap", "takes a dictionary; give the features as a tensor"),
):
    refuse(f"ai.onnx.ml::{_op}", _why)


@rewrites("ai.onnx.ml::Scaler")
def scaler(node: Rewrite) -> None:
    """Compute (x - offset) * scale, per feature or for all (ONNX Scaler-1)."""
    x = node.cast(node.input(0), np.float32)
    offset, scale = floats(node, "offset", (0,)), floats(node, "scale", (1,))
    node.emit(node.op("Mul", node.op("Sub", x, offset), scale))


@rewrites("ai.onnx.ml::Binarizer")
def binarizer(node: Rewrite) -> None:
    """Return 1 above the threshold, 0 elsewhere (ONNX Binarizer-1)."""
    x = node.input(0)
    threshold = np.asarray(node.attribute("threshold", 0.0), node.dtype(x))
    node.emit(node.op("Cast", node.op("Greater", x, threshold), to=ir.DataType.from_numpy(node.dtype(x))))


@rewrites("ai.onnx.ml::Normalizer")
def normalizer(node: Rewrite) -> None:
    """Divide each row by its maximum, its L1 or its L2 norm (ONNX Normalizer-1)."""
    x, norm = node.cast(node.input(0), np.float32), text(node, "norm", "MAX")
    axis = np.array([len(node.shape(node.input(0))) - 1])
    size = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(norm)
    if size is None:
        node.unsupported(f"normalizes by {norm!r}")
    divisor = node.op(size, x, axis)
    divisor = node.op("Where", node.op("Equal", divisor, np.float32(0)), np.float32(1), divisor)
    node.emit(node.op("Div", x, divisor))


_KINDS = ("float", "floats", "int64", "int64s")


@rewrites("ai.onnx.ml::Imputer")
def imputer(node: Rewrite) -> None:
    """Replace missing values, per feature or for all (ONNX Imputer-1)."""
    # Values for features of the other type are of no use.
    node.ignore(*(f"{each}_{kind}" for each in ("replaced_value", "imputed_value") for kind in _KINDS))
    x = node.input(0)
    kind = "float" if node.dtype(x).kind == "f" else "int64"
    imputed = np.asarray(node.attribute(f"imputed_value_{kind}s", ()), node.dtype(x))
    replaced = node.attribute(f"replaced_value_{kind}", 0)
    if not imputed.size:
        node.unsupported(f"has no values for features of {node.dtype(x)}")
    if kind == "float" and np.isnan(replaced):
        missing = node.op("IsNaN", x)
    else:
        missing = node.op("Equal", x, np.asarray(replaced, node.dtype(x)))
    node.emit(node.op("Where", missing, imputed, x))


@rewrites("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(node: Rewrite) -> None:
    """Select features by number (ONNX ArrayFeatureExtractor-1)."""
    x, numbers = node.input(0), node.op("Reshape", node.input(1), np.array([-1]))
    rank = len(node.shape(x))
    result = node.op("Gather", x, numbers, axis=rank - 1)
    node.emit(node.op("Unsqueeze", result, np.array([0])) if rank == 1 else result)


@rewrites("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(node: Rewrite) -> None:
    """Concatenate the features of all inputs in float32 (ONNX FeatureVectorizer-1)."""
    parts = [node.input(index) for index in range(len(node.node.inputs))]
    sizes = node.attribute("inputdimensions", ())
    shapes = [node.shape(part) for part in parts]
    if list(map(_features_of_row, shapes)) != list(sizes):
        node.unsupported("has inputs of other sizes than it declares")
    rows = [
        part if len(shape) == 2 else node.op("Reshape", part, np.array([-1, size]))
        for part, shape, size in zip(
            (node.cast(part, np.float32) for part in parts), shapes, sizes, strict=True
        )
    ]
    node.emit(node.op("Concat", *rows, axis=1))


def _features_of_row(shape: tuple[int | None, ...]) -> int | None:
    """Return the elements of a row of any rank, as ONNX Runtime counts features; a vector is one row."""
    known = [size for size in (shape if len(shape) == 1 else shape[1:]) if size is not None]
    return prod(known) if len(known) == max(len(shape) - 1, 1) else None


@rewrites("ai.onnx.ml::OneHotEncoder")
def one_hot_encoder(node: Rewrite) -> None:
    """Encode each category one-hot along a new last axis (ONNX OneHotEncoder-1)."""
    if node.attribute("cats_strings"):
        node.unsupported(f"its categories are strings, {_STRINGS}")
    if not node.attribute("zeros", 1):
        node.unsupported("fails on unknown categories (zeros=0); export it so that it ignores them")
    x, categories = node.input(0), np.asarray(node.attribute("cats_int64s", ()), np.int64)
    found = node.op("Equal", node.op("Unsqueeze", node.cast(x, np.int64), np.array([-1])), categories)
    node.emit(node.op("Cast", found, to=ir.DataType.FLOAT))


@rewrites("ai.onnx.ml::LabelEncoder")
def label_encoder(node: Rewrite) -> None:
    """Map each key to its value, or to the default (ONNX LabelEncoder-4)."""
    node.ignore("default_float", "default_int64", "default_string")  # those of other types than the values'
    keys, values = _read_list(node, "keys"), _read_list(node, "values")
    if keys.dtype.kind == "U":
        node.unsupported(f"its keys are strings, {_STRINGS}")
    if not keys.size or keys.size != values.size:
        node.unsupported(f"has {keys.size} keys and {values.size} values")
    x = node.input(0)
    column = node.op("Unsqueeze", x, np.array([-1]))
    found = node.op("Equal", column, keys.astype(node.dtype(x)))
    if keys.dtype.kind == "f" and np.isnan(keys).any() and node.opset("ai.onnx.ml") >= 4:
        found = node.op("Or", found, node.op("And", node.op("IsNaN", column), np.isnan(keys)))
    hits = node.op("Cast", found, to=ir.DataType.INT32)
    any_ = node.op("Cast", node.op("ReduceMax", hits, np.array([-1]), keepdims=0), to=ir.DataType.BOOL)
    value = node.op("Gather", values, node.op("ArgMax", hits, axis=-1, keepdims=0))
    node.emit(node.op("Where", any_, value, _default(node, values.dtype)))


def _read_list(node: Rewrite, what: str) -> Array:
    """Return the keys or values from the attribute that holds them."""
    tensor = node.attribute(f"{what}_tensor")
    if tensor is not None:
        return _decode(tensor.reshape(-1)) if tensor.dtype.kind in "OSU" else tensor.reshape(-1)
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32)):
        listed = node.attribute(f"{what}_{kind}")
        if listed:
            return np.asarray(listed, dtype)
    return _decode(node.attribute(f"{what}_strings", ()))


def _decode(texts: Iterable[str | bytes]) -> Array:
    return np.asarray([decode(each) for each in texts], np.str_)


def _default(node: Rewrite, dtype: np.dtype[Any]) -> Array:
    tensor = node.attribute("default_tensor")
    if dtype.kind == "U":
        given = node.attribute("default_string", "_Unused") if tensor is None else tensor.reshape(-1)[0]
        return np.asarray(decode(given))
    if tensor is not None:
        return np.asarray(tensor.reshape(-1)[0], dtype)
    name, default = ("default_int64", -1) if dtype.kind in "iu" else ("default_float", -0.0)
    return np.asarray(node.attribute(name, default), dtype)
