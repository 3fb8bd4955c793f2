"""Formulas of linear algebra and statistics: Det, and BatchNormalization in training mode."""

from __future__ import annotations

import numpy as np

from onnxport.optimizers.rewrites.terms import Draft, Term, formula

_MOST_COLUMNS = 32  # each takes some twenty operators


@formula("Det")
def determinant(draft: Draft) -> list[Term]:
    """Compute determinants of square matrices (ONNX Det-22) as the product of LU decomposition's pivots."""
    x = draft.input(0)
    size = x.shape[-1] if x.shape[-1] is not None else x.shape[-2]
    if size is None or not 0 < size <= _MOST_COLUMNS:
        draft.unsupported(
            f"matrices of {size or 'an open number of'} columns; up to {_MOST_COLUMNS} are unrolled"
        )
    left = x.cast(np.float32).reshape(-1, size, size)
    result: Term | None = None
    for column in range(size - 1):
        left, pivot = _eliminate(draft, left, size - column)
        result = pivot if result is None else result * pivot
    last = left.reshape(-1, 1)
    result = last if result is None else result * last
    return [result.reshape(*(x.size(axis) for axis in range(x.rank - 2))).cast(x.dtype)]


def _eliminate(draft: Draft, left: Term, size: int) -> tuple[Term, Term]:
    """Return [n, size, size] without its first column and its pivot's row, and the signed pivot [n, 1]."""
    column = left.cut(2, 0, 1).reshape(-1, size)
    place = column.call("Abs").call("ArgMax", dtype=np.int64, axis=1, keepdims=1)
    is_pivot = place.cast(np.int32).equals(np.arange(size, dtype=np.int32)[None])
    hit = is_pivot.unsqueeze(2)
    row = hit.where(left, 0.0).sum(1, keep=True)
    # The first row goes where the pivot's was.
    exchanged = hit.where(left.cut(1, 0, 1), left)
    pivot = row.cut(2, 0, 1)
    is_zero = pivot.equals(0.0)
    factors = exchanged.cut(1, 1, size).cut(2, 0, 1) / is_zero.where(1.0, pivot)
    rest = exchanged.cut(1, 1, size).cut(2, 1, size) - factors * row.cut(2, 1, size)
    sign = (place < 1).where(1.0, -1.0)
    return rest, pivot.reshape(-1, 1) * sign


@formula("BatchNormalization", lambda node: bool(node.attributes.get_int("training_mode", 0)))
def batch_normalization_in_training(draft: Draft) -> list[Term | None]:
    """Normalize by the batch's mean and variance, and update the running ones (ONNX BatchNormalization-15)."""
    draft.ignore("training_mode")
    x = draft.input(0)
    scale, bias, mean, variance = (draft.input(index).cast(np.float32) for index in range(1, 5))
    epsilon, momentum = draft.attribute("epsilon", 1e-5), draft.attribute("momentum", 0.9)
    wide, axes = x.cast(np.float32), (0, *range(2, x.rank))
    batch_mean = wide.mean(*axes, keep=True)
    centred = wide - batch_mean
    batch_variance = (centred * centred).mean(*axes, keep=True)
    along = (1, -1, *(1,) * (x.rank - 2))
    factor = scale.reshape(*along) / (batch_variance + epsilon).call("Sqrt")
    result = centred * factor + bias.reshape(*along)
    moved = [
        running * momentum + own.reshape(-1) * (1.0 - momentum)
        for running, own in ((mean, batch_mean), (variance, batch_variance))
    ]
    wanted = [draft.node.wants_output(index) for index in (1, 2)]
    return [
        result.cast(x.dtype),
        *(each.cast(draft.input(3 + i).dtype) if wanted[i] else None for i, each in enumerate(moved)),
    ]
