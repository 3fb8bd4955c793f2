"""Bias correction: move the mean shift that a rounded weight causes into the bias.

Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2, with measured
means. W x + b shifts by (V - W) E[x] where W becomes V. The means are those of the float model, so a layer corrects
only what its own weight did, not what the layers before it have corrected already.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.core.windows import taps_on_data
from onnxport.quantize.grids import Floats, QuantizedWeight

_ELEMENTS = 1 << 18  # of a weight that are corrected together


def correct_bias(
    bias: Floats,
    weight: Floats,
    rounded: QuantizedWeight,
    means: Array,
    axis: int,
    taps: Array | None = None,
) -> Floats:
    """Return the bias, float32[channels], that keeps a product's mean over the samples as before rounding.

    The zeros that a Conv pads with are ignored: inside an image every tap of a filter meets the mean.

    Args:
        weight: the result's channels along `axis`, then the input channels (of a group), then a filter's taps.
        means: float64[inputs], of each channel of the product's operand.
        taps: which meet data, see `find_taps_on_data`; all by default.
    """
    before, after = (np.moveaxis(each, axis, 0) for each in (weight, rounded.floats))
    sums = np.empty(before.shape[:2])
    together = max(1, _ELEMENTS * len(before) // max(before.size, 1))
    for start in range(0, len(before), together):  # float64 of all at once is twice a weight
        part = slice(start, start + together)
        moved = after[part].astype(np.float64) - before[part]
        moved = moved if taps is None else moved * taps
        sums[part] = moved.reshape(*moved.shape[:2], -1).sum(axis=2)
    return (bias - _response(sums, means)).astype(np.float32)


def find_taps_on_data(node: ir.Node) -> Array | None:
    """Return which taps of a product's filter meet data at its declared sizes; None where all may."""
    data, weight = node.inputs[:2]
    if node.op_type != "Conv" or data is None or data.shape is None or weight is None or weight.shape is None:
        return None
    taps = [int(each) for each in weight.shape.numpy()[2:]]
    if len(data.shape) != len(taps) + 2 or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return None
    sizes = [each if isinstance(each, int) else None for each in data.shape[2:]]
    ones, zeros = (1,) * len(taps), (0,) * 2 * len(taps)
    strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    return taps_on_data(sizes, taps, strides, dilations, node.attributes.get_ints("pads", zeros))


def _response(kernel: Array, means: Array) -> Array:
    """Return float64[channels]: the output of `kernel`, [channels, inputs of a group], for mean inputs."""
    groups = len(means) // kernel.shape[1]
    grouped = kernel.reshape(groups, -1, kernel.shape[1])
    shift: Array = np.matmul(grouped, means.reshape(groups, -1, 1))
    return shift.reshape(-1)
