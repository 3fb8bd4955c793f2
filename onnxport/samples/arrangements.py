"""Arrange drawn values so that their elements depend on each other as an operator demands."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.domain import Domain

_SPECIAL = 0.3  # share of infinities and NaN


def arrange(random: np.random.Generator, drawn: Array, domain: Domain) -> Array:
    """Return values of the same shape with the structure that `domain` names."""
    if domain.structure == "distinct-rows" and domain.limits:
        return _distinct_rows(random, drawn, domain.limits)
    if domain.limits:
        return np.asarray(np.floor(random.random(drawn.shape) * np.asarray(domain.limits)))
    if domain.structure == "distinct-all":
        return _distinct(random, drawn.ravel(), 0, domain).reshape(drawn.shape)
    if domain.structure == "distinct":
        return _distinct(random, drawn, domain.axis, domain)
    if domain.structure == "corners":
        return _boxes(random, drawn, domain)
    if domain.structure == "special":
        return _special(random, drawn)
    return np.where(drawn == 0, np.ones((), drawn.dtype), drawn)


def _distinct(random: np.random.Generator, drawn: Array, axis: int, domain: Domain) -> Array:
    """Return different integers along an axis; unchanged where there are too few."""
    count = domain.high - domain.low + 1
    if not drawn.ndim or drawn.shape[axis] > count:
        return drawn
    moved = np.moveaxis(drawn, axis, -1)
    rows = [random.permutation(count)[: moved.shape[-1]] for _ in range(math.prod(moved.shape[:-1]))]
    return np.moveaxis(np.reshape(rows, moved.shape), -1, axis) + domain.low


def _distinct_rows(random: np.random.Generator, drawn: Array, limits: tuple[int, ...]) -> Array:
    rows, places = math.prod(drawn.shape[:-1]), math.prod(limits)
    chosen = random.permutation(places)[:rows] if rows <= places else random.integers(0, places, rows)
    return np.stack(np.unravel_index(chosen, limits), axis=-1).reshape(drawn.shape)


def _boxes(random: np.random.Generator, drawn: Array, domain: Domain) -> Array:
    """Return boxes of two corners, the first below the second, many of which overlap."""
    low, high = domain.bounds or (0.0, 1.0)
    first = low + (high - low) * random.uniform(0.0, 0.5, (*drawn.shape[:-1], 2))
    second = first + (high - low) * random.uniform(0.2, 0.5, first.shape)
    return np.concatenate([first, second], axis=-1) if drawn.shape[-1] == 4 else drawn


def _special(random: np.random.Generator, drawn: Array) -> Array:
    """Put infinities of both signs and NaN among the numbers."""
    chances = random.random(drawn.shape)
    values = random.choice(np.array([np.inf, -np.inf, np.nan]), drawn.shape)
    return np.where(chances < _SPECIAL, values, drawn)
