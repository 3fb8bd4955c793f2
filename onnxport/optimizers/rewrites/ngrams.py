"""Counts of n-grams: TfIdfVectorizer over integers."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite, rewrites
from onnxport.optimizers.rewrites.sizes import integers, size_of, slice_axis

_FLOAT, _INT64 = ir.DataType.FLOAT.value, ir.DataType.INT64.value


@rewrites("TfIdfVectorizer")
def count_ngrams(node: Rewrite) -> None:
    """Count each n-gram of a pool of integers in [C] or [N, C], weighted (ONNX TfIdfVectorizer-9)."""
    pool = node.attribute("pool_int64s")
    if not pool:
        node.unsupported("counts n-grams of strings, which no target has; do this outside of the model")
    skips = range(1, node.attribute("max_skip_count", 0) + 2)
    lengths = range(node.attribute("min_gram_length", 1), node.attribute("max_gram_length", 1) + 1)
    x = node.op("Cast", node.input(0), to=_INT64)
    counts = []
    bounds = pairwise([*node.attribute("ngram_counts", ()), len(pool)])
    for length, (start, end) in enumerate(bounds, 1):
        if start == end:
            continue
        grams = np.array(pool[start:end], np.int64).reshape(-1, length)
        # Skipping means nothing to single elements, which are counted once.
        found = [_count_matches(node, x, grams, step) for step in (skips if length > 1 else range(1, 2))]
        total = reduce(lambda a, b: node.op("Add", a, b), found)
        counts.append(total if length in lengths else node.op("Mul", total, np.float32(0)))
    joined = counts[0] if len(counts) == 1 else node.op("Concat", *counts, axis=-1)
    node.emit(_arrange_columns(node, joined))


def _count_matches(node: Rewrite, x: ir.Value, grams: Array, step: int) -> ir.Value:
    """Count the places in x where every `step`-th element matches an n-gram; [..., n-grams]."""
    length = grams.shape[1]
    windows = node.op("Sub", size_of(node, x, -1), integers((length - 1) * step))
    windows = node.op("Max", windows, integers(0))
    matches = []
    for place in range(length):
        start = integers(place * step)
        part = slice_axis(node, x, start, node.op("Add", windows, start), -1)
        matches.append(node.op("Equal", node.op("Unsqueeze", part, integers(-1)), grams[:, place]))
    every = reduce(lambda a, b: node.op("And", a, b), matches)
    return node.op("ReduceSum", node.op("Cast", every, to=_FLOAT), integers(-2), keepdims=0)


def _arrange_columns(node: Rewrite, counts: ir.Value) -> ir.Value:
    """Put the counts into the columns that the node names, weighted by its mode."""
    indexes, mode = node.attribute("ngram_indexes", ()), node.attribute("mode", "TF")
    if len(set(indexes)) < len(indexes):
        node.unsupported("counts several n-grams in one column")
    weights = np.array(node.attribute("weights") or [1.0] * len(indexes), np.float32)
    if mode != "TF":
        counts = node.op("Min", counts, np.float32(1)) if mode == "IDF" else counts
        counts = node.op("Mul", counts, weights)
    # Columns that no n-gram has are taken from one of zeros behind the others.
    empty = node.op("Mul", slice_axis(node, counts, integers(0), integers(1), -1), np.float32(0))
    places = np.full(max(indexes) + 1, len(indexes))
    places[list(indexes)] = np.arange(len(indexes))
    return node.op("Gather", node.op("Concat", counts, empty, axis=-1), places, axis=-1)
