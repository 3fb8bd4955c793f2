"""Weights in fewer bits, by coremltools' own optimizers, which also work on programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onnxport.converters.coreml.library import (
    OpLinearQuantizerConfig,
    OpMagnitudePrunerConfig,
    OpPalettizerConfig,
    OptimizationConfig,
    kmeans1d,
    linear_quantize_weights,
    palettize_weights,
    prune_weights,
)
from onnxport.core.arrays import Array
from onnxport.core.errors import UsageError

_SMALLEST = 1e-300  # the divisor if all weights are 0
_GRID = 4096
_BLOCK = 32  # weights that share an int4 scale
# First iOS version with the operators, if not iOS16.
_SINCE = {"int4": 18, "palette3": 18}
_OLDEST = 16


def check_weights(weights: str | None, target: str) -> None:
    """Refuse a compression that the target does not support (UsageError)."""
    if weights is None:
        return
    since = _SINCE.get(weights, _OLDEST)
    if int(target.removeprefix("iOS")) < since:
        raise UsageError(
            f"{target} does not support --weights {weights}",
            why=f"its operators came with iOS{since}",
            fix=f"give --minimum-target iOS{since}" + (", or --weights palette4" if since > 16 else ""),
        )


def compress(program: Any, weights: str | None) -> None:
    """Compress the weights of a program in place."""
    if weights is None:
        return
    kind = weights.rstrip("0123456789")
    number = int(weights.removeprefix(kind))
    if kind == "palette":
        # coremltools' own "kmeans" asks for scikit-learn unless there are many weights, all of float16.
        config = OpPalettizerConfig(mode="custom", lut_function=partial(_cluster, 2**number))
        optimizer = palettize_weights
    elif kind == "sparse":
        config, optimizer = OpMagnitudePrunerConfig(target_sparsity=number / 100), prune_weights
    else:
        grain = (
            {"granularity": "per_channel"}
            if number == 8
            else {"granularity": "per_block", "block_size": _BLOCK}
        )
        config = OpLinearQuantizerConfig(mode="linear_symmetric", dtype=weights, **grain)
        optimizer = linear_quantize_weights
    optimizer(OptimizationConfig(global_config=config)).apply(program)


def _cluster(most: int, weights: Array) -> tuple[Array, Array]:
    """Return the palette of `most` values with the least squared error, and each weight's index in it."""
    exact = weights.ravel().astype(np.float64)
    # A grid that is finest at 0, with few enough points for fast clustering.
    shares = exact / max(np.abs(exact).max(), _SMALLEST)
    grid, which, counts = np.unique(
        np.rint(_GRID * np.copysign(np.sqrt(np.abs(shares)), shares)), return_inverse=True, return_counts=True
    )
    near = np.copysign(grid**2, grid)
    clusters = kmeans1d.cluster(near, min(most, len(near)), weights=counts).clusters
    indices = np.asarray(clusters)[which.ravel()]
    sums, sizes = (np.bincount(indices, each, minlength=most) for each in (exact, None))
    return (sums / np.maximum(sizes, 1)).astype(weights.dtype), indices.astype(np.uint8)
