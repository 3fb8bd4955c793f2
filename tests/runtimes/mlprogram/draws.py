"""Random arguments for operators: a table from the operator's name to what draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Draw = Callable[[Random, int], dict[str, Any]]

FLOATS = ("float32", "float16")
NUMBERS = (*FLOATS, "int32")
ANY = (*NUMBERS, "bool")
# From iOS17 on, what only moves data takes narrow integers.
NARROW = ("int8", "uint8", "int16", "uint16")

CASES: dict[str, Draw] = {}


def case(*operators: str) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        for operator in operators:
            assert operator not in CASES, operator
            CASES[operator] = draw
        return draw

    return register


def shape_of(random: Random, lowest: int = 1, highest: int = 5, largest: int = 5) -> tuple[int, ...]:
    rank = int(random.integers(lowest, highest + 1))
    return tuple(int(size) for size in random.integers(1, largest + 1, rank))


def values(
    random: Random, shape: tuple[int, ...], dtypes: tuple[str, ...], low: float = -8, high: float = 8
) -> Any:
    dtype = str(random.choice(dtypes))
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in FLOATS:
        return np.asarray(random.uniform(low, high, shape)).astype(dtype)
    lowest = max(int(low), 0) if dtype.startswith("u") else int(low)
    return random.integers(lowest, int(high) + 1, shape).astype(dtype)


def moved(opset: int) -> tuple[str, ...]:
    return (*ANY, *NARROW) if opset >= 17 else ANY


def axis_of(random: Random, rank: int) -> int:
    return int(random.integers(-rank, rank))


def axes_of(random: Random, rank: int) -> list[int]:
    count = int(random.integers(1, rank + 1))
    return [int(axis) - rank * int(random.integers(2)) for axis in random.permutation(rank)[:count]]


def flag(random: Random) -> bool:
    return bool(random.integers(2))


def distinct(random: Random, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> Any:
    """No value twice, so that nothing hangs on the order of equals."""
    size = int(np.prod(shape))
    return (random.permutation(size) - size // 2).reshape(shape).astype(str(random.choice(dtypes)))
