"""The error of rounding a tensor whose channels are divided, and the weights of the products that read it.

Dividing each channel by s before a tensor is rounded, and multiplying what reads it by s, changes both errors. In the
result of a product with the weight W they are

    of the tensor   sum of E[(x - Q(x))^2] * W^2 over the channels, Q rounds and clips to the tensor's best grid
    of the weight   step^2 / 12 * sum of E[x^2], per result step = largest |W| / 127

with x and W as divided and multiplied. The first is measured on rows of the samples: channels that are 0 at most
places, as behind a Relu, lose less than step^2 / 12, and their far values reach further than their strength tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.accuracy.product_constants import array_of
from onnxport.quantize.accuracy.ranges import mse_range_of_rows, row_weights
from onnxport.quantize.tensor_summary import TensorSummary

# A channel's reach ends after so many of its root mean squares: the best end for a normal distribution in 8 bits.
_DEVIATIONS = 4.0
# The least reach, as a share of the largest: a channel that the samples do not excite gets no factor without limit.
_LEAST_REACH = 0.01
_STEPS, _WEIGHT_STEPS = 255, 127
# Numbers of a tensor, at most, on which rounding is measured.
_ELEMENTS = 1 << 15


@dataclass(frozen=True)
class Spread:
    """The reach of a tensor's channels and some of its rows, from the samples.

    Attributes:
        reach: the largest magnitude of each channel that matters; float64[channels].
        rows: some places; float32[rows, channels], at least one row.
        weights: what each row counts (ranges.py); float64[rows], 1 together.
    """

    reach: Array
    rows: Array
    weights: Array

    @classmethod
    def of(cls, seen: TensorSummary, bounds: tuple[float, float] | None) -> Spread | None:
        """Return the reach between `bounds`, and none further than values of that strength deserve.

        Args:
            seen: with the extremes of channels; None is returned where it has no rows.
        """
        assert seen.extremes is not None
        rows = seen.rows
        if rows is None or not rows.size:
            return None
        low, high = (np.asarray(each, np.float64) for each in seen.extremes)
        limit = _DEVIATIONS * np.sqrt(np.square(rows, dtype=np.float64).mean(axis=0))
        if bounds is not None:
            low, high = np.maximum(low, bounds[0]), np.minimum(high, bounds[1])
            rows = np.clip(rows, *bounds)
        some = rows[:: math.ceil(rows.size / _ELEMENTS)].copy()  # a view would keep all of them
        weights = row_weights(some)
        return cls(np.minimum(np.maximum(-low, high), limit), some, weights / weights.sum())

    def reach_of(self, channels: int) -> Array:
        """Return the reach of each channel as a share of the largest; behind a Flatten, of the channels before it."""
        reach = self.reach.reshape(channels, -1).max(axis=1)
        return np.asarray(np.maximum(reach / (reach.max(initial=0.0) or 1.0), _LEAST_REACH))

    @cached_property
    def squares(self) -> Array:
        """The mean square of each channel, float64[channels]."""
        return np.asarray(self.weights @ np.square(self.rows, dtype=np.float64))

    def measure_rounding(self, factors: Array) -> Array:
        """Return the mean squared error of each channel after its division, on the tensor's best grid.

        Args:
            factors: of each channel, or of each before a Flatten.
        """
        rows = np.asarray(self.rows / np.repeat(factors, len(self.reach) // len(factors)), np.float32)
        low, high = mse_range_of_rows(rows, _STEPS + 1)
        step = (high - low) / _STEPS or 1.0
        zero_point = float(np.rint(-low / step))
        rounded = np.rint(rows / step)
        np.maximum(np.minimum(rounded, _STEPS - zero_point, out=rounded), -zero_point, out=rounded)
        error = rows - np.multiply(rounded, step, dtype=np.float64)
        return np.asarray(self.weights @ np.square(error, out=error))


@dataclass(frozen=True)
class ProductWeight:
    """The constant weight of a Conv, Gemm or MatMul, summed up over the taps of its window.

    Attributes:
        squares: the sum of squares; float64[results, inputs of a group].
        largest: the largest magnitude; float64[results, inputs of a group].
        taps: how many there are.
    """

    squares: Array
    largest: Array
    taps: int

    @classmethod
    def of(cls, node: ir.Node) -> ProductWeight:
        """Read the weight of a product."""
        weight = array_of(node.inputs[1]).astype(np.float64)
        if node.op_type == "Conv":
            rows = weight.reshape(*weight.shape[:2], -1)
        else:
            rows = (weight if node.attributes.get_int("transB", 0) else weight.T)[:, :, None]
        return cls(np.square(rows).sum(axis=2), np.abs(rows).max(axis=2), rows.shape[2])

    def measure_error(self, factors: Array, rounding: Array, squares: Array) -> float:
        """Return the squared error of the product's results, as a share of their squares.

        Args:
            factors: what each channel of the operand is divided by, and the weight multiplied; float64[channels].
            rounding: the error of each channel as divided.
            squares: the mean square of each channel before that.
        """
        groups = len(factors) // self.squares.shape[1]
        by, squares, rounding = (
            np.repeat(each.reshape(groups, -1), len(self.squares) // groups, axis=0)
            for each in (factors, squares, rounding)
        )
        of_tensor = (self.squares * np.square(by) * rounding).sum()
        steps = (self.largest * by).max(axis=1) / _WEIGHT_STEPS
        of_weight = np.square(steps) @ (squares / np.square(by)).sum(axis=1) * self.taps / 12
        signal = (self.squares * squares).sum()
        return float((of_tensor + of_weight) / signal) if signal else 0.0
