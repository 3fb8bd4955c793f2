"""Inputs near a user's sample, inside the domain that it shows: they show whether an output varies at all."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.samples.domain import Domain

_SHIFT = 0.25  # of the spread of a sample's values

Move = Callable[[np.random.Generator, Array], Array]


def neighbour(
    feeds: Feeds, domains: Mapping[str, Domain], settings: Collection[str], seed: int, number: int
) -> dict[str, Array]:
    """Return inputs of the same shapes and types with other values.

    In turn all values are shifted, rows mixed, and elements moved to other magnitudes; each stays between the least and
    the largest value of its input. Lengths stay but where rows are mixed: there they are up to a half shorter.

    Args:
        settings: inputs that stay: axes, sizes and the like.
        number: of the neighbour; each has other values.
    """
    return {
        name: array if name in settings else _move(array, domains.get(name), name, seed, number)
        for name, array in feeds.items()
    }


def _move(array: Array, domain: Domain | None, name: str, seed: int, number: int) -> Array:
    kind = "" if domain is None else domain.kind
    shrinks = kind == "length" and number % len(_FLOAT_MOVES) == 1
    if (
        (kind in ("length", "position", "mask") and not shrinks)
        or not array.size
        or (array.dtype.kind == "f" and not np.isfinite(array).any())
    ):
        return array
    random = np.random.Generator(np.random.PCG64([seed, number, zlib.crc32(name.encode())]))
    if array.dtype.name.startswith(("float8", "bfloat16")):
        return np.asarray(_move(array.astype(np.float32), domain, name, seed, number), array.dtype)
    if array.dtype.kind == "f" and kind == "integer":
        whole = np.rint(_replace_special(random, array)).astype(np.int64)
        return np.asarray(_integers(random, whole, domain), array.dtype)
    if array.dtype.kind == "f":
        array = _replace_special(random, array)
        moved = _FLOAT_MOVES[number % len(_FLOAT_MOVES)](random, array)
        inside: Array = np.clip(moved, array.min(), array.max()) if array.ndim else moved
        return np.asarray(inside, array.dtype)
    if shrinks:
        return np.asarray(random.integers(np.minimum((array + 1) // 2, array), array + 1), array.dtype)
    if array.dtype.kind in "iu":
        return _integers(random, array, domain)
    return random.permuted(array) if array.ndim else np.asarray(not array if array.dtype == bool else array)


def _integers(random: np.random.Generator, array: Array, domain: Domain | None) -> Array:
    """Mix the values, or draw others of the range that the sample and its domain show."""
    if domain is not None and domain.structure:
        return array  # distinct indices and their like
    low, high = int(array.min()), int(array.max())
    if array.ndim and low < high:
        drawn = random.integers(low, high + 1, array.shape)
        mixed = np.where(random.random(array.shape) < 0.5, drawn, random.permuted(array))
        return np.asarray(mixed, array.dtype)
    known = domain is not None and domain.kind == "integer"
    if known and domain is not None:
        low, high = min(low, domain.low), max(high, domain.high)
    drawn = random.integers(low, high + 1, array.shape)
    return np.asarray(drawn, array.dtype)


def _replace_special(random: np.random.Generator, array: Array) -> Array:
    """Replace NaN and infinities by finite values of the sample."""
    is_finite = np.isfinite(array)
    if is_finite.all():
        return array
    return np.asarray(np.where(is_finite, array, random.choice(array[is_finite], array.shape)))


def _shift(random: np.random.Generator, array: Array) -> Array:
    spread = float(np.std(array)) if array.size > 1 else abs(float(array.ravel()[0])) or 1.0
    return np.asarray(array + _SHIFT * spread * random.standard_normal(array.shape))


def _mix(random: np.random.Generator, array: Array) -> Array:
    return random.permuted(array) if array.ndim else _shift(random, array)


def _scale(random: np.random.Generator, array: Array) -> Array:
    return np.asarray(array * np.exp2(-random.integers(0, 4, array.shape).astype(np.float64)))


_FLOAT_MOVES: tuple[Move, ...] = (_shift, _mix, _scale)
