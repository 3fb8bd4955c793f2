"""The names in the locations of a compiled module: its passes join those of the operations that they fuse."""

from __future__ import annotations

from collections.abc import Iterator

from litert_converter.mlir import ir


def names_in(location: ir.Location) -> Iterator[str]:
    """Yield all names in a location, nested ones too."""
    if hasattr(location, "locations"):
        for part in location.locations:
            yield from names_in(part)
    elif hasattr(location, "name_str"):
        yield location.name_str
