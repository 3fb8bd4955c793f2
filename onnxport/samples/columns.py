"""Columns of a table for tree models, drawn around the thresholds where the model's output changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxport.core.arrays import Array

_MISSING = 0.1  # share of missing values
_EDGES = 0.4  # share of values at a threshold or next to it
_LARGE = 1e4
_FINITE = (-3e38, 3e38)  # of float32


@dataclass(frozen=True)
class Column:
    """The domain of one column.

    Attributes:
        levels: thresholds, ascending; between two of them the model's output is constant.
        codes: the categories of a categorical column: numbers or strings.
        missing: whether the model handles NaN as a missing value.
    """

    levels: tuple[float, ...] = ()
    codes: tuple[Any, ...] = ()
    missing: bool = False


def draw(
    random: np.random.Generator, shape: tuple[int, ...], columns: Sequence[Column], kind: str, precision: str
) -> Array:
    """Draw a table of `shape` with `columns` on its last axis; a single column is repeated.

    Of float64 only the kind "uniform" uses all bits: targets without float64 are judged by the other sets.

    Args:
        precision: the float dtype that numbers are rounded to.
    """
    if precision == "float64" and kind != "uniform":
        return draw(random, shape, columns, kind, "float32").astype(precision)
    width = shape[-1] if shape else 1
    each = list(columns) * width if len(columns) == 1 else list(columns)
    drawn = [_column(random, shape[:-1], column, kind, np.dtype(precision)) for column in each]
    return np.stack(drawn, axis=-1).reshape(shape)


def is_odd_nan(table: Array, columns: Sequence[Column]) -> Array:
    """Return where a table has NaN that is no missing value: bool[shape]."""
    missing = np.array([column.missing for column in columns])
    return np.asarray(np.isnan(table) & ~(missing if table.ndim else missing[0]))


def _column(
    random: np.random.Generator, shape: tuple[int, ...], column: Column, kind: str, precision: np.dtype[Any]
) -> Array:
    if column.codes:
        texts = any(isinstance(code, str) for code in column.codes)
        codes = np.array(column.codes, object if texts else precision)
        values = codes[random.integers(0, len(codes), shape)]
    elif kind in ("zeros", "constant"):
        values = np.full(shape, kind == "constant", precision)
    elif kind == "large":
        values = (_LARGE * random.standard_normal(shape)).astype(precision)
    else:
        values = _numbers(random, shape, column.levels, precision)
    if not column.missing or kind in ("zeros", "constant", "large"):
        return values
    share = 1.0 - _MISSING if kind == "sparse" else _MISSING
    return np.where(random.random(shape) < share, precision.type(np.nan), values)


def _numbers(
    random: np.random.Generator, shape: tuple[int, ...], levels: Sequence[float], precision: np.dtype[Any]
) -> Array:
    """Draw numbers between thresholds, beyond the outer ones, at thresholds and next to them."""
    if not levels:
        return random.standard_normal(shape).astype(precision)
    known = np.clip(np.asarray(levels, np.float64), *_FINITE)
    reach = max(float(known[-1] - known[0]), abs(float(known[0])), 1.0) / 2
    bounds = np.clip([known[0] - reach, *known, known[-1] + reach], *_FINITE)
    slot = random.integers(0, len(known) + 1, shape)
    between = bounds[slot] + random.random(shape) * (bounds[slot + 1] - bounds[slot])
    level = known[random.integers(0, len(known), shape)].astype(precision)
    side = random.integers(-1, 2, shape)
    beside = np.nextafter(level, np.where(side < 0, -np.inf, np.inf).astype(precision))
    at = np.where(side == 0, level, beside)
    return np.where(random.random(shape) < _EDGES, at, between.astype(precision))
