"""Which parts of two graphs have another form and give the same numbers: a converter may write LogSoftmax as a Sub.

Both graphs run on some sets of inputs. Where the values of a mismatch are the same, or what reads them is, it is none.
Bounds are left out: inputs may not reach them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.axes import long_sizes
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.matches import Matching, Mismatch

# Operators of which a form may have another setting: axes in another order, wider integers, pads for ceil_mode, fewer
# taps for an axis of one element, one list of operands for two, a slice of a slice.
_SETTABLE = frozenset({"Transpose", "Reshape", "Cast", "MaxPool", "Conv", "Pad", "Concat", "Slice"})
_FACTORS = ("scale", "shift")
_UPWARDS = 6  # readers: of axes in another order the numbers are not compared, and a factor may have moved
_SETS = 3
_NOISE = 2e-5  # of the largest number: float32 in another order of operations

Pair = tuple[ir.Value, ir.Value]


def equal_answers(
    form: Graph, source: Graph, matching: Matching, asked: Iterable[Pair], sets: Sequence[Feeds]
) -> set[Pair]:
    """Return the pairs of values that make no difference to any set of inputs; none where a graph cannot run."""
    places = {each: list(_places(each, matching)) for each in asked}
    pairs = {pair for found in places.values() for pair in found}
    if not pairs:
        return set()
    try:
        ours = _answers(form, {pair[0].name or "" for pair in pairs}, sets)
        theirs = _answers(source, {pair[1].name or "" for pair in pairs}, sets)
    except (InputError, RunError):  # an operator that ONNX has not
        return set()
    return {
        each
        for each, found in places.items()
        if any(
            all(
                _is_equal(mine.get(one.name or ""), its.get(other.name or ""))
                for mine, its in zip(ours, theirs, strict=True)
            )
            for one, other in found
        )
    }


def may_be_another_form(found: Mismatch) -> bool:
    """Return whether a mismatch is of a kind that a right file may have."""
    if found.about in _FACTORS:
        return True
    return found.is_structure and (found.about == "operator" or found.core.op in _SETTABLE)


def _places(pair: Pair, matching: Matching) -> Iterator[Pair]:
    """Yield a pair and those that read it, as far as both sides have the same sizes, but for those of 1."""
    waiting, seen = [pair], {pair}
    for _ in range(_UPWARDS):
        for pair in waiting:
            ours, theirs = (static_sizes(each) for each in pair)
            if ours is not None and theirs is not None and long_sizes(ours) == long_sizes(theirs):
                yield pair
        readers = [reader for pair in waiting for reader in matching.readers.get(pair, ())]
        # Of several readers, one alone tells nothing of the others.
        waiting = [each for each in readers if each not in seen] if len(readers) == 1 else []
        seen.update(waiting)


def _answers(graph: Graph, names: set[str], sets: Sequence[Feeds]) -> list[Mapping[str, Array]]:
    with OrtRuntime.of_model(graph.model) as runtime:
        taps = sorted(names & runtime.taps)
        return [{**feeds, **runtime.run(feeds, taps=taps)} for feeds in sets[:_SETS]]


def _is_equal(ours: Array | None, theirs: Array | None) -> bool:
    if ours is None or theirs is None or long_sizes(ours.shape) != long_sizes(theirs.shape):
        return False
    ours, theirs = ours.squeeze(), theirs.squeeze()
    if "U" in (ours.dtype.kind, theirs.dtype.kind) or object in (ours.dtype, theirs.dtype):
        return bool(np.array_equal(ours, theirs))
    one, other = (each.astype(np.float64) for each in (ours, theirs))
    if one.size > 1 and len(np.unique(one)) == 1:  # of one number in all places, the order tells nothing
        return False
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    scale = _largest([one[finite], other[finite]])
    return bool((np.abs(one - other)[finite] <= _NOISE * scale).all())


def _largest(arrays: Sequence[Array]) -> float:
    return max(float(np.abs(each).max(initial=0.0)) for each in arrays)
