"""Values that wait long and are read seldom, as compressed bytes."""

from __future__ import annotations

import pickle
import zlib
from typing import Generic, TypeVar

T = TypeVar("T")
_FAST = 1  # of zlib's levels; the others take longer and save little


class Packed(Generic[T]):
    """A copy of a value that takes little memory; it never leaves the process."""

    __slots__ = ("_content",)

    def __init__(self, value: T) -> None:
        self._content = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), _FAST)

    def open(self) -> T:
        """Return a new copy of the value."""
        value: T = pickle.loads(zlib.decompress(self._content))
        return value
