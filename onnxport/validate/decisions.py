"""Decisions that rounding turns: the noise of an output that a Softmax gives, where its two first classes are close.

Between large logits a Softmax answers 0 or 1. Two probes that happen to decide alike would show no noise at all, where
a third rounding decides otherwise; the logits show it. So where a row's first class leads by no more than twice the
noise of its logits, the row's noise is at least what moving the logits by that much makes of it: the others together
hold q of the answer, and q * e / (1 - q + q * e) when their logits gain t against the first's, e = exp(t).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.tolerance import Noise, group_maxima, root_mean_squares

# The candidate and the probe are off by as much each.
_APART = 2.0
_LARGEST = 700.0  # what exp takes
# Since when Softmax works along one axis; before, on all axes from that one on.
_ONE_AXIS = 13


@dataclass(frozen=True)
class Decision:
    """An output that a Softmax gives.

    Attributes:
        logits: what goes into it.
        axis: the first axis of those that it sums over.
        flattens: whether it sums over all from there on.
    """

    logits: str
    axis: int
    flattens: bool

    def noise(self, logits: Array, moved: Array) -> Noise:
        """The noise of the output, from its logits and those of a probe; 0 where the first class leads far enough."""
        apart = _moved_mass(self._rows(logits), self._rows(moved))
        rows = self._rows(logits).shape
        shares = self._back(np.broadcast_to(apart[:, None], rows), logits.shape)
        # What the first class loses goes to one other at most: two elements of the row.
        return Noise(group_maxima(shares), None, rms=root_mean_squares(shares * math.sqrt(2 / rows[1])))

    def _rows(self, values: Array) -> Array:
        if self.flattens:
            return values.reshape(math.prod(values.shape[: self.axis]), -1).astype(np.float64)
        moved = np.moveaxis(values, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1]).astype(np.float64)

    def _back(self, rows: Array, shape: tuple[int, ...]) -> Array:
        if self.flattens:
            return rows.reshape(shape)
        moved = (*shape[: self.axis], *shape[self.axis + 1 :], shape[self.axis])
        return np.moveaxis(rows.reshape(moved), -1, self.axis)


def decisions(model: Model) -> dict[str, Decision]:
    """Graph output to what a Softmax makes it of, for those that one does."""
    found = {}
    for value in model.graph.outputs:
        node = value.producer()
        if node is None or node.op_type != "Softmax" or node.domain or value.shape is None or not value.name:
            continue
        source, flattens = node.inputs[0], model.opset < _ONE_AXIS
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1 if flattens else -1
        # Probes are asked for values that nodes compute.
        if source is not None and source.name and source.producer() is not None:
            found[value.name] = Decision(source.name, axis % max(len(value.shape), 1), flattens)
    return found


def beside(noise: Mapping[str, Noise], found: Mapping[str, Noise]) -> dict[str, Noise]:
    """The noise of every output, of decisions at least that which their logits tell of."""
    return {name: own.beside(found[name], 1.0) if name in found else own for name, own in noise.items()}


def _moved_mass(rows: Array, moved: Array) -> Array:
    """How much of each row's answer may go from the first class to others, or back; 0 where the row is decided."""
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
        gain = np.exp(np.minimum(_APART * change, _LARGEST))
        # The others may also lose as much; of the two, what is more.
        up, down = (others * factor / (1 + others * factor) for factor in (gain, 1 / gain))
        share = others / (1 + others)
        return np.where(turned, np.maximum(up - share, share - down), 0.0)
