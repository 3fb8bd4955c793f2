"""Bias correction: what the rounding of a weight shifts on average goes into the bias.

Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2, with means that
are measured instead of derived. A product W x + b whose weight becomes V shifts by (V - W) E[x], a constant that a bias
takes back at no cost. The means are those of the float model, and of a layer's own weight alone: corrected by what all
layers before it did, errors are counted again and again (Nagel et al. correct them in order, each with all before it
quantized, which takes a pass a layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxport.quantize.grids import Floats, QuantizedWeight
from onnxport.quantize.placement import Unit

Array = np.ndarray[Any, np.dtype[Any]]


def corrected(bias: Floats, weight: Floats, rounded: QuantizedWeight, means: Array, unit: Unit) -> Floats:
    """The bias with which a product's mean over the samples is what it was before the weight was rounded.

    Args:
        bias: float32[channels].
        weight: of a Conv [channels, inputs / group, ...]; of Gemm and MatMul, with the channels along its axis.
        rounded: the weight in integers.
        means: float64[inputs], of each channel of the product's first operand.
    """
    shift = _response(np.float64(rounded.floats) - weight, means, unit)
    return (bias - shift).astype(np.float32)


def axis_of_inputs(unit: Unit) -> int:
    """Along which the channels of a product's first operand lie."""
    return 1 if unit.op == "Conv" else -1


def corrected_biases(
    units: Mapping[str, tuple[Unit, Floats, Floats, QuantizedWeight]], means: Mapping[str, Array]
) -> dict[str, Floats]:
    """Name of a product's node to its corrected bias.

    Args:
        units: name of a node to its unit, bias, weight and rounded weight.
        means: name of an activation to the mean of each of its channels.
    """
    return {
        name: corrected(bias, weight, rounded, means[unit.reads[0]], unit)
        for name, (unit, bias, weight, rounded) in units.items()
    }


def _response(kernel: Array, means: Array, unit: Unit) -> Array:
    """What a product with `kernel` makes of inputs that are `means` everywhere, float64[channels].

    The zeros that a Conv pads with are left out: inside an image, each tap of the filter meets the mean.
    """
    if unit.op != "Conv":
        assert unit.weight is not None
        assert unit.weight.axis is not None
        return np.moveaxis(kernel, unit.weight.axis, 0) @ means
    taps = kernel.reshape(*kernel.shape[:2], -1).sum(axis=2)
    groups = len(means) // taps.shape[1]
    grouped = taps.reshape(groups, -1, taps.shape[1])
    return np.einsum("goi,gi->go", grouped, means.reshape(groups, -1)).reshape(-1)
