"""Decisions of a Softmax, and the noise of its answers where they are close.

Between large logits a Softmax answers 0 or 1. Two probes that happen to decide alike show no noise at all, where a
third rounding decides otherwise; the logits show it. So a row whose first class leads by no more than twice the noise
of its logits gets at least the noise of moving the logits by that much: the other classes together hold q of the
answer, and q * e / (1 - q + q * e) when their logits gain t against the first's, with e = exp(t).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.tolerance import Noise, group_maxima, root_mean_squares

LARGEST_EXPONENT = 700.0  # that exp takes
# The candidate and the probe are off by as much each.
_APART = 2.0
# Since this opset Softmax works along one axis; before, on all axes from that one on.
_ONE_AXIS = 13


@dataclass(frozen=True)
class Decision:
    """An output that a Softmax gives.

    Attributes:
        logits: the Softmax's input.
        axis: the first axis that it sums over.
        flattens: whether it sums over all axes from there on.
    """

    logits: str
    axis: int
    flattens: bool

    def noise(self, logits: Array, moved: Array) -> Noise:
        """Return the output's noise by its logits and a probe's; 0 where the first class leads far enough."""
        rows = self.rows(logits).astype(np.float64)
        apart = _moved_mass(rows, self.rows(moved).astype(np.float64))
        shares = self.unflatten(np.broadcast_to(apart[:, None], rows.shape), logits.shape)
        # What the first class loses goes to one other at most: two elements of the row.
        rms = root_mean_squares(shares * math.sqrt(2 / rows.shape[1]))
        return Noise(group_maxima(shares), None, rms=rms)

    def rows(self, values: Array) -> Array:
        """Return [row, class]: values of the output's shape, a row for each sum."""
        if self.flattens:
            return values.reshape(math.prod(values.shape[: self.axis]), -1)
        moved = np.moveaxis(values, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    def unflatten(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """Return rows in the output's shape."""
        if self.flattens:
            return rows.reshape(shape)
        moved = (*shape[: self.axis], *shape[self.axis + 1 :], shape[self.axis])
        return np.moveaxis(rows.reshape(moved), -1, self.axis)


def find_decisions(model: Model) -> dict[str, Decision]:
    """Map the graph outputs that a Softmax gives to their decisions."""
    found = {}
    for value in model.graph.outputs:
        node = value.producer()
        if node is None or node.op_type != "Softmax" or node.domain or value.shape is None or not value.name:
            continue
        source, flattens = node.inputs[0], model.opset < _ONE_AXIS
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1 if flattens else -1
        # Runtimes show values that nodes compute.
        if source is not None and source.name and source.producer() is not None:
            found[value.name] = Decision(source.name, axis % max(len(value.shape), 1), flattens)
    return found


def _moved_mass(rows: Array, moved: Array) -> Array:
    """Return how much of each row may go from the first class to others, or back; 0 for a decided row."""
    if rows.shape != moved.shape or rows.shape[-1] < 2:
        return np.zeros(len(rows))
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(rows + moved).all(axis=-1, keepdims=True)
        first = np.argmax(np.where(finite, rows, 0.0), axis=-1)[:, None]
        behind = rows - np.take_along_axis(rows, first, -1)
        change = np.abs(behind - (moved - np.take_along_axis(moved, first, -1))).max(axis=-1)
        np.put_along_axis(behind, first, -np.inf, -1)
        turned = finite[:, 0] & (-behind.max(axis=-1) <= _APART * change)
        others = np.exp(behind).sum(axis=-1)
        gain = np.exp(np.minimum(_APART * change, LARGEST_EXPONENT))
        # The others may also lose as much; the larger change counts.
        up, down = (others * factor / (1 + others * factor) for factor in (gain, 1 / gain))
        share = others / (1 + others)
        return np.where(turned, np.maximum(up - share, share - down), 0.0)
