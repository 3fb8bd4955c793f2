"""Weights in fewer bits, through coremltools' own optimizers, which work on programs as well as on packages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from coremltools.optimize.coreml import (
    OpLinearQuantizerConfig,
    OpMagnitudePrunerConfig,
    OpPalettizerConfig,
    OptimizationConfig,
)
from coremltools.optimize.coreml._quantization_passes import (
    linear_quantize_weights,
    palettize_weights,
    prune_weights,
)

from onnxport.converters.coreml import library  # noqa: F401 - before coremltools
from onnxport.errors import UsageError

_BLOCK = 32  # weights that share an int4 scale
# Since when a target has the operators; others have them since iOS16.
_SINCE = {"int4": 18, "palette3": 18}
_OLDEST = 16


def check_weights(weights: str | None, target: str) -> None:
    """Refuses a compression that the target does not have (UsageError)."""
    if weights is None:
        return
    since = _SINCE.get(weights, _OLDEST)
    if int(target.removeprefix("iOS")) < since:
        raise UsageError(
            f"--weights {weights} is not for {target}",
            why=f"its operators are of iOS{since}",
            fix=f"give --minimum-target iOS{since}" + (", or --weights palette4" if since > 16 else ""),
        )


def compress(program: Any, weights: str | None) -> None:
    """Compresses the weights of a program, in place."""
    if weights is None:
        return
    kind, digits = re.fullmatch(r"([a-z]+)(\d+)", weights).groups()  # type: ignore[union-attr]
    _KINDS[kind](int(digits)).apply(program)


def _integers(bits: int) -> Any:
    if bits == 8:
        config = OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8", granularity="per_channel")
    else:
        config = OpLinearQuantizerConfig(
            mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=_BLOCK
        )
    return linear_quantize_weights(OptimizationConfig(global_config=config))


def _palette(bits: int) -> Any:
    config = OpPalettizerConfig(mode="kmeans", nbits=bits)
    return palettize_weights(OptimizationConfig(global_config=config))


def _sparse(percent: int) -> Any:
    config = OpMagnitudePrunerConfig(target_sparsity=percent / 100)
    return prune_weights(OptimizationConfig(global_config=config))


_KINDS: dict[str, Callable[[int], Any]] = {"int": _integers, "palette": _palette, "sparse": _sparse}
