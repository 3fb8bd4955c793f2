"""Tensors of a `.tflite` file that hold values of its source, by their names, and in which order of axes.

A name is a hint alone, and so is what the numbers of one set of inputs tell of the order of axes. What is concluded
from landmarks is measured (stand_ins.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.tflite.contents import StoredTensor

# The correlation of a tensor's numbers with those of the source's value, below which they do not tell the order.
_LEAST_ALIKE = 0.25
# What the lowering adds to the name of a value that is rounded, or not yet.
_ROUNDED = re.compile(r"\.(quantize|unrounded|floats)$")
# What quantize adds to a value whose channels are scaled; those of the source are, too (channel_factors.py).
_SCALED = ".by_channel"
_MOST_RANK = 4  # of values whose axes may stand in any order
_ROOM = 256 * 2**20  # bytes of values that one run of the source shows
_BYTES = 4


@dataclass(frozen=True)
class Landmark:
    """A tensor and the source's value in it: transposed by `order`, then with the tensor's sizes.

    Attributes:
        tensor: of the file.
        name, shape, dtype: of the source's value.
        order: of its axes.
    """

    tensor: StoredTensor
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...]


def find_landmarks(
    tensors: Sequence[StoredTensor], values: Mapping[int, Array], source: Model, feeds: Feeds
) -> dict[int, Landmark]:
    """Return the landmarks among `tensors`, by index.

    Args:
        values: what the file has in its tensors when it is fed `feeds`.

    Raises:
        RunError: ONNX Runtime cannot run the source.
    """
    found = {}
    computed = [each for each in tensors if each.index in values and each.data is None]
    with OrtRuntime.of_model(source) as runtime:
        outputs = {each.name for each in runtime.outputs}
        names = {each.index: _name_value(each.name, runtime.taps | outputs) for each in computed}
        for group in _groups([each for each in computed if names[each.index]], values):
            taps = [
                name for name in dict.fromkeys(names[each.index] for each in group) if name not in outputs
            ]
            answers = runtime.run(feeds, taps=taps)
            for each in group:
                name = names[each.index]
                ours, theirs = _floats(each, values[each.index]), answers[name]
                if (order := _order(ours, theirs)) is not None:
                    found[each.index] = Landmark(each, name, theirs.shape, theirs.dtype, order)
    return found


def _name_value(name: str, known: Collection[str]) -> str:
    """Return the source's value that a tensor is named after; empty for none."""
    rounded = _ROUNDED.sub("", name)
    return next((each for each in (name, rounded, rounded.removesuffix(_SCALED)) if each in known), "")


def _groups(tensors: Sequence[StoredTensor], values: Mapping[int, Array]) -> Iterator[list[StoredTensor]]:
    """Yield tensors whose values fit into memory together."""
    group: list[StoredTensor] = []
    taken = 0
    for each in tensors:
        size = _BYTES * values[each.index].size
        if group and taken + size > _ROOM:
            yield group
            group, taken = [], 0
        group.append(each)
        taken += size
    if group:
        yield group


def _floats(tensor: StoredTensor, values: Array) -> Array:
    grid = tensor.grid
    if grid is None or not grid.is_uniform:
        return values
    return np.asarray((values.astype(np.float64) - grid.zero_point) * grid.scale)


def _order(ours: Array, theirs: Array) -> tuple[int, ...] | None:
    """Return the order of the source's axes that a tensor has, by its numbers; None where it has other sizes.

    Behind a logarithm the numbers of a quantized file may be far from the source's, and still go up and down with them.
    """
    if ours.size != theirs.size or ours.dtype.kind not in "fiub" or theirs.dtype.kind not in "fiub":
        return None
    orders = list(_orders(theirs.shape, ours.shape))
    if len(orders) == 1:
        return orders[0]
    alike = [_correlation(ours, theirs.transpose(order)) for order in orders]
    best = int(np.argmax(alike))
    return orders[best if alike[best] >= _LEAST_ALIKE else 0]


def _correlation(ours: Array, theirs: Array) -> float:
    one, other = (np.nan_to_num(each.reshape(-1).astype(np.float64)) for each in (ours, theirs))
    one, other = one - one.mean(), other - other.mean()
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else 1.0


def _orders(shape: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of axes in which all sizes but 1s are a tensor's; the plain one where there is none."""
    plain = tuple(range(len(shape)))
    long = [each for each in wanted if each != 1]
    seen = set()
    for order in permutations(plain) if len(shape) <= _MOST_RANK else ():
        kept = tuple(each for each in order if shape[each] != 1)
        if kept not in seen and [shape[each] for each in kept] == long:
            seen.add(kept)
            yield order
    if not seen:
        yield plain
