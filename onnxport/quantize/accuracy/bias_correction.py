"""Bias correction: move the mean shift that a rounded weight causes into the bias.

Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2, with measured
means. W x + b shifts by (V - W) E[x] where W becomes V. The means are those of the float model, so a layer corrects
only what its own weight did, not what the layers before it have corrected already.
"""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.grids import Floats, QuantizedWeight


def correct_bias(bias: Floats, weight: Floats, rounded: QuantizedWeight, means: Array, axis: int) -> Floats:
    """Return the bias, float32[channels], that keeps a product's mean over the samples as before rounding.

    The zeros that a Conv pads with are ignored: inside an image every tap of a filter meets the mean.

    Args:
        weight: the result's channels along `axis`, then the input channels (of a group), then a filter's taps.
        means: float64[inputs], of each channel of the product's operand.
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
