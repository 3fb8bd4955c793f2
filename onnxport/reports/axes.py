"""From figures to places on a drawing, and the round figures that stand at its axes, in the units of the SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from onnxport.reports.charts import Tick

_RATIO = 5.0  # of amounts: beyond it their axis is logarithmic

Axis = tuple[Callable[[float], float], list[Tick]]


def amounts(
    found: Sequence[float], start: float, end: float, say: Callable[[float], str], gap: float
) -> Axis:
    """From an amount to a place between `start` and `end`, logarithmic where amounts are far apart.

    Args:
        found: what has to find room; none below 0.
        say: what an amount is called at the axis.
        gap: how far apart two of these have to be.
    """
    least = min((each for each in found if each > 0), default=1.0)
    low, high = max(min(found), least), max(*found, least)
    far = high / low > _RATIO
    scaled: Callable[[float], float] = math.log10 if far else float
    first, last = widened(scaled(low), scaled(high), 0.05 * high or 1.0)

    def at(amount: float) -> float:
        return start + (scaled(amount) - first) / (last - first) * (end - start)

    many = int(abs(end - start) // (1.5 * gap))
    ticks = _decades(low, high) if far else list(rounds(first, last, many))
    shown = [Tick(round(at(tick), 1), say(tick)) for tick in ticks if tick > 0]
    return lambda amount: at(max(amount, low)), _apart(shown, min(start, end), max(start, end), gap)


def widened(low: float, high: float, least: float) -> tuple[float, float]:
    """A range with room at its ends, and with some extent where all is one value."""
    room = max((high - low) * 0.08, 0.0) or least
    return low - room, high + room


def rounds(low: float, high: float, most: int) -> Iterator[float]:
    """Round numbers from `low` to `high`, 1, 2 or 5 times a power of ten apart, about `most` of them."""
    raw = (high - low) / max(most, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= raw * 0.999)
    for count in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield count * step


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [each * 10.0**power for power in range(first, last + 1) for each in (1, 2, 5)]


def _apart(ticks: Sequence[Tick], least: float, most: float, gap: float) -> list[Tick]:
    """Those between the ends whose labels do not touch."""
    shown: list[Tick] = []
    for tick in ticks:
        inside = least - 10 <= tick.at <= most + 4
        if inside and (not shown or abs(tick.at - shown[-1].at) > gap):
            shown.append(tick)
    return shown
