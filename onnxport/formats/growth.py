"""The limit on what a file may describe: references that share their targets could stand for any amount.

An ordinary writer stores each part once, so that reading a file takes time and memory in proportion to its bytes.
"""

from __future__ import annotations

from onnxport.core import limits

_ALLOWANCE = 64 * 2**20  # bytes beyond the limit: writers may store equal strings once


class OverlappingPartsError(ValueError):
    """A file whose references share their targets too often."""


class Growth:
    """The bytes that may still be read of a file of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._times = limits.limit("growth")  # an ordinary file describes a few times its bytes
        self._left = self._times * size + _ALLOWANCE

    def take(self, count: int) -> None:
        """Count bytes that were read, or are about to be; OverlappingPartsError where they are too many."""
        self._left -= count
        if self._left < 0:
            raise OverlappingPartsError(
                "its parts refer to each other so often that it describes more than its bytes hold; "
                + limits.advice("growth", 4 * self._times)
            )
