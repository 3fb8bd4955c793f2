"""What a state holds before the first step: zeros, as large as the inputs that come with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.sizes import OpenSizes


def beginning(state: TensorSpec, inputs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> Array:
    """Zeros for `state`: open dimensions are as large as those of their name in the other inputs, else the batch.

    Args:
        inputs: all that the model takes.
        feeds: the arrays of those that are given.
    """
    known = {
        dim: size
        for spec in inputs
        if spec.name in feeds
        for dim, size in zip(spec.shape, feeds[spec.name].shape, strict=True)
        if isinstance(dim, str)
    }
    axes = OpenSizes(inputs, {spec.name: spec.shape for spec in inputs}).batch_axes
    batch = next((feeds[name].shape[axis] for name, axis in axes.items() if name in feeds), 1)
    sizes = [dim if isinstance(dim, int) else known.get(str(dim), batch) for dim in state.shape]
    return np.zeros(sizes, state.dtype)
