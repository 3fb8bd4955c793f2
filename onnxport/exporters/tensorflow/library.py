"""TensorFlow and tf2onnx, imported silently and on the CPU; this room imports both from here."""

from __future__ import annotations

import contextlib
import os
from importlib.metadata import version
from typing import Any

import numpy as np

# Read while TensorFlow and Keras are imported; a keras.json of the user's may name another backend.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

__all__ = ["TENSORFLOW", "dtype_name", "shape_of", "tf"]

tf.get_logger().setLevel("ERROR")
with contextlib.suppress(RuntimeError, ValueError):  # a factory's module may have used one by now
    tf.config.set_visible_devices([], "GPU")

TENSORFLOW = f"TensorFlow {tf.__version__}"
EXPORTER = f"tf2onnx {version('tf2onnx')}"


def shape_of(tensor: Any) -> tuple[int | None, ...] | None:
    """Return a tensor's shape, None for open dimensions; None where not even the rank is known."""
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a TensorFlow dtype ("string" for text); TensorFlow's own where NumPy has none."""
    if dtype == tf.string:
        return "string"
    try:
        return str(np.dtype(dtype.as_numpy_dtype).name)
    except TypeError:
        return str(dtype.name)
