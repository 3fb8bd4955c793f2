"""Reductions. Sums are of float32, or of 64-bit integers that wrap at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Int, register

_Reduction = Callable[[Array, tuple[int, ...] | None, bool], Array]


def _log_sum_exp(x: Array, axes: tuple[int, ...] | None, keep: bool) -> Array:
    highest = x.max(axis=axes, keepdims=True)
    # inf - inf would be NaN.
    shift = np.where(np.isfinite(highest), highest, 0)
    summed = np.log(np.exp(x - shift).sum(axis=axes, keepdims=True)) + shift
    return np.asarray(summed if keep else summed.reshape(x.sum(axis=axes).shape))


# Reductions of integers to integers.
_EXACT: dict[str, _Reduction] = {
    "reduce_l1_norm": lambda x, axes, keep: np.abs(x).sum(axis=axes, keepdims=keep),
    "reduce_max": lambda x, axes, keep: x.max(axis=axes, keepdims=keep),
    "reduce_min": lambda x, axes, keep: x.min(axis=axes, keepdims=keep),
    "reduce_prod": lambda x, axes, keep: x.prod(axis=axes, keepdims=keep),
    "reduce_sum": lambda x, axes, keep: x.sum(axis=axes, keepdims=keep),
    "reduce_sum_square": lambda x, axes, keep: np.square(x).sum(axis=axes, keepdims=keep),
}
# Reductions whose result may have a fraction.
_ROUNDED: dict[str, _Reduction] = {
    "reduce_l2_norm": lambda x, axes, keep: np.sqrt(np.square(x).sum(axis=axes, keepdims=keep)),
    "reduce_log_sum": lambda x, axes, keep: np.log(x.sum(axis=axes, keepdims=keep)),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_mean": lambda x, axes, keep: x.mean(axis=axes, keepdims=keep),
}


def _reduction(function: _Reduction, exact: bool) -> Callable[..., Array]:
    def reduce(x: Array, call: Call, axes: Array | None = None, keep_dims: Flag = False) -> Array:
        chosen = None if axes is None else tuple(int(axis) for axis in axes.reshape(-1))
        found = np.asarray(function(x, chosen, bool(keep_dims)))
        if call.strict and not exact and x.dtype.kind != "f" and (found != np.trunc(found)).any():
            call.undefined("how an integer result with a fraction is rounded")
        return found

    return reduce


register({name: _reduction(function, exact=True) for name, function in _EXACT.items()})
register({name: _reduction(function, exact=False) for name, function in _ROUNDED.items()})


def _position(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel of the position of an extremum, the first of a tie; the documentation guarantees none."""

    def reduce(x: Array, axis: Int = -1, keep_dims: Flag = False, output_dtype: str = "int32") -> Array:
        return np.asarray(function(x, axis=int(axis), keepdims=bool(keep_dims)))

    return reduce


register({"reduce_argmax": _position(np.argmax), "reduce_argmin": _position(np.argmin)})
