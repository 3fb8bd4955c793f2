"""Bias correction: move the mean shift that a rounded weight causes into the bias.

Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2, with means
that are measured instead of derived. A product W x + b whose weight becomes V shifts by (V - W) E[x], a constant that a
bias takes back at no cost. The means are those of the float model, and what a layer takes back is what its own weight
did: corrected by the whole shift of its output, it would take back what layers before it have taken back already.
"""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.grids import Floats, QuantizedWeight


def correct_bias(bias: Floats, weight: Floats, rounded: QuantizedWeight, means: Array, axis: int) -> Floats:
    """Return the bias that keeps a product's mean over the samples as it was before its weight was rounded.

    The zeros that a Conv pads with are left out: inside of an image every tap of a filter meets the mean.

    Args:
        bias: float32[channels].
        weight: with the result's channels along `axis`. Along the others an input's channels, or those of one group
            of them, and behind these the taps of a filter.
        rounded: the weight in integers.
        means: float64[inputs], of each channel of the product's operand.

    Returns:
        float32[channels].
    """
    shift = _response(np.moveaxis(rounded.floats.astype(np.float64) - weight, axis, 0), means)
    return (bias - shift).astype(np.float32)


def _response(kernel: Array, means: Array) -> Array:
    """Return float64[channels]: the output of `kernel`, [channels, inputs of a group, ...], for mean inputs."""
    taps = kernel.reshape(*kernel.shape[:2], -1).sum(axis=2)
    groups = len(means) // taps.shape[1]
    grouped = taps.reshape(groups, -1, taps.shape[1])
    shift: Array = np.matmul(grouped, means.reshape(groups, -1, 1))
    return shift.reshape(-1)
