"""A search for inputs that excite a silent network: no gradient, seeded, of a fixed number of runs.

A detector answers 1e-7 on noise and on soft images, which is its sigmoid's rounding. Sharp structure of some size and
orientation moves it. The search draws such pictures, keeps the one that changes the answers most, and replaces windows
of it by other pictures while that changes more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onnxport.core.arrays import Array, Feeds

# Pictures to begin with, and rounds of some changes to the best.
_DRAWN, _ROUNDS, _CHANGED = 12, 3, 8


def search(draw: Callable[[int], Feeds], rate: Callable[[Feeds], float], seed: int) -> Iterator[Feeds]:
    """Yield the best inputs that were drawn, and then better ones, if the search finds any; none that move nothing.

    Args:
        draw: returns the inputs of a number.
        rate: how far they move what stood still.
    """
    random = np.random.Generator(np.random.PCG64([seed, _DRAWN]))
    rated = [(rate(feeds), feeds) for feeds in map(draw, range(_DRAWN))]
    most, best = max(rated, key=lambda each: each[0])
    if most <= 0:
        return
    first = best
    yield first
    number = _DRAWN
    for _ in range(_ROUNDS):
        changed = []
        for _ in range(_CHANGED):
            feeds = {
                name: _with_window(random, array, other)
                for (name, array), other in zip(best.items(), draw(number).values(), strict=True)
            }
            changed.append((rate(feeds), feeds))
            number += 1
        most, best = max([(most, best), *changed], key=lambda each: each[0])
    if best is not first:
        yield best


def _with_window(random: np.random.Generator, array: Array, other: Array) -> Array:
    """Return floats with a window of another array, along every axis longer than 4."""
    if array.dtype.kind != "f" or array.shape != other.shape:
        return array
    window = tuple(
        slice(*sorted(random.integers(0, size + 1, 2).tolist())) if size > 4 else slice(None)
        for size in array.shape
    )
    changed = array.copy()
    changed[window] = other[window]
    return changed
