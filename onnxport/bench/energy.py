"""What the processor's packages use, where Linux lets this user read the counters (RAPL, in /sys/class/powercap).

Since 2020 only root may, unless the machine's owner has changed that. A counter is of a whole package: everything that
runs on it and its idle power are in the figure.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

ROOT = "/sys/class/powercap"
_MICRO = 1e-6


class Counters:
    """The energy counters of all packages; none where the machine tells nothing."""

    def __init__(self, root: str = ROOT) -> None:
        self._zones = [zone for zone in _packages(root) if _number(zone, "energy_uj") is not None]

    def __bool__(self) -> bool:
        return bool(self._zones)

    def read(self) -> tuple[int, ...]:
        """Microjoules of each package since some moment."""
        return tuple(_number(zone, "energy_uj") or 0 for zone in self._zones)

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float | None:
        """Used between two readings, less than a minute apart: a counter that came to its end meanwhile began anew.
        None where nobody tells."""
        if not self._zones:
            return None
        used = 0
        for zone, first, last in zip(self._zones, before, after, strict=True):
            used += (
                last - first if last >= first else last - first + (_number(zone, "max_energy_range_uj") or 0)
            )
        return used * _MICRO


def _packages(root: str) -> list[str]:
    """The zones that are a package. Those below one are parts of it, "psys" is the whole platform, and intel-rapl-mmio
    tells the same counters by another way."""
    try:
        zones = sorted(
            name for name in os.listdir(root) if name.startswith("intel-rapl:") and name.count(":") == 1
        )
    except OSError:
        return []
    found = [os.path.join(root, zone) for zone in zones]
    return [zone for zone in found if _text(zone, "name").startswith("package")]


def _number(zone: str, name: str) -> int | None:
    text = _text(zone, name)
    return int(text) if text.isdigit() else None


def _text(zone: str, name: str) -> str:
    try:
        with open(os.path.join(zone, name), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
